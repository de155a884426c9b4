"""The engine in a process of its own, which can be killed, and tells over a socket what happens to its steps."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from allranks.local import processes
from allranks.local.engine import run_plan
from allranks.local.execution import StepExecution
from allranks.local.folders import RunFolder
from allranks.local.options import RunObserver, RunOptions
from allranks.local.plan import RunPlan
from allranks.local.result import RETRYING, StepResult

STARTED, CHANGED, LEFT, ENDED = "started", "changed", "left", "ended"
_LONGEST = 2**16  # bytes of an event
_LONGEST_MESSAGE = 2000  # characters of what ended a step


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """What an engine tells.

    Attributes:
        kind: ``started`` (a run), ``changed`` (a step has another status), ``left`` (without this drill, nothing would
            have started the step again) or ``ended`` (the run).
        time: in monotonic seconds, which all processes of a machine share.
        run: the run's id.
        step, attempt: of what has changed; ``status`` is the step's or the run's, ``message`` what ended it.
    """

    kind: str
    time: float
    run: str
    step: str = ""
    status: str = ""
    attempt: int = 0
    message: str = ""


class EngineProcess:
    """A run of a plan in a forked process, in a session of its own: Ctrl-C is for who drills."""

    def __init__(self, plan: RunPlan, options: RunOptions) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _run_engine(plan, options, other, parent)
        other.close()
        self._open = True

    def next_event(self, seconds: float) -> EngineEvent | None:
        """What has happened, after at most so many seconds; None if nothing has, or the engine is gone."""
        if not self._open or not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            text = self._socket.recv(_LONGEST)
        except ConnectionResetError:
            text = b""
        if not text:
            self._open = False
            return None
        return EngineEvent(**json.loads(text))

    def let_retry(self) -> None:
        """Answer the event of a step that is to be started again: it waits for this."""
        with suppress(OSError):
            self._socket.send(b"go")

    @property
    def is_open(self) -> bool:
        """Whether it may still tell something."""
        return self._open

    def kill(self) -> None:
        """SIGKILL, as from a machine that is taken away."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait until it has ended, which has to be soon."""
        self._socket.close()
        self._open = False
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _run_engine(plan: RunPlan, options: RunOptions, channel: socket.socket, parent: int) -> None:
    """The process's whole life; never returns."""
    code = 1
    try:
        os.setsid()
        processes.die_with(parent)
        observer = _TellingObserver(channel)
        result = run_plan(plan, options, observer)
        observer.tell(ENDED, status=result.status)
        code = result.exit_code
    except BaseException as error:  # noqa: BLE001 told to who drills, whose process this is a copy of
        with suppress(OSError):
            channel.send(_encoded(ENDED, "", {"status": "failed", "message": f"{type(error).__name__}: {error}"}))
    os._exit(code)


class _TellingObserver(RunObserver):
    """Tells what happens; a step that failed waits for an answer, and is then started again at once."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._run = ""

    def tell(self, kind: str, **about: Any) -> None:
        """Send an event; nobody is there any more only when this process is about to be killed."""
        with suppress(OSError):
            self._channel.send(_encoded(kind, self._run, about))

    def started(self, run: RunFolder, plan: RunPlan) -> None:  # noqa: ARG002 who drills has it
        """The run begins."""
        self._run = run.id
        self.tell(STARTED)

    def changed(self, step: StepResult) -> None:
        """A step has another status."""
        message = step.failure.message[:_LONGEST_MESSAGE] if step.failure else ""
        self.tell(CHANGED, step=step.name, status=step.status, attempt=step.attempts, message=message)
        if step.status == RETRYING:
            with suppress(OSError):
                self._channel.recv(8)

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """No back-off: how long one waits says nothing about the step."""
        for execution in steps.values():
            if execution.status == RETRYING:
                execution.due = time.monotonic()
                if not execution.comes_back:
                    self.tell(LEFT, step=execution.step.name)


def _encoded(kind: str, run: str, about: Mapping[str, Any]) -> bytes:
    return json.dumps({"kind": kind, "time": time.monotonic(), "run": run, **about}).encode()

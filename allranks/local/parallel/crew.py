"""The workers of a parallel step: processes that are started, told what to do, listened to and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from allranks.local import processes

_STACK_SECONDS = 0.3  # that a worker gets to write where it hangs


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where one worker runs: its node's folder, the variables that differ from the coordinator's own, its log."""

    number: int
    cwd: Path
    variables: dict[str, str]
    log: Path


class Worker:
    """One worker process.

    Attributes:
        batch: the index of the mini batch that it has, or None; ``attempt`` counts from 0.
        is_ready: whether ``init`` has returned; ``is_running``: whether ``run`` has been called with the mini batch.
        deadline: when what it does now has taken too long (seconds of the clock), for the reason ``limit``.
    """

    def __init__(
        self,
        place: WorkerPlace,
        program: Path,
        settings: dict[str, Any],
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self.batch: int | None = None
        self.is_ready = self.is_running = False
        self._clock = clock
        self.deadline = clock() + patience
        self.limit = f"init() has not returned after {patience:g} s"
        self._received = b""
        order_end, self._orders = os.pipe()
        self.answers, answer_end = os.pipe()
        said = json.dumps({**settings, "orders": order_end, "answers": answer_end})
        with place.log.open("ab", buffering=0) as log:
            self._process = subprocess.Popen(
                ["python", "-u", str(program), said],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place.cwd,
                env={**os.environ, **place.variables, "PWD": str(place.cwd)},
                pass_fds=(order_end, answer_end),
                process_group=0,  # what it starts is killed with it
                preexec_fn=partial(processes.die_with, os.getpid()),  # noqa: PLW1509 safe here: there is one thread
            )
        os.close(order_end)
        os.close(answer_end)
        os.set_blocking(self.answers, False)
        self.pidfd = os.pidfd_open(self._process.pid)

    def tell(self, **order: Any) -> None:
        """Give an order; a worker that has died is noticed by its pidfd."""
        with suppress(BrokenPipeError):
            os.write(self._orders, json.dumps(order).encode() + b"\n")

    def expect(self, seconds: float, limit: str) -> None:
        """It has so many seconds for what it does next."""
        self.deadline, self.limit = self._clock() + seconds, limit

    def heard(self) -> list[dict[str, Any]]:
        """What it has answered since the last look."""
        with suppress(BlockingIOError):
            while block := os.read(self.answers, 65536):
                self._received += block
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def ask_for_stack(self) -> None:
        """Let it write where it hangs."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGUSR1)
            time.sleep(_STACK_SECONDS)

    def reap(self) -> int:
        """End what is left of it and give its exit code, minus the number of the signal that killed it."""
        processes.kill_group(self._process.pid)
        code = self._process.wait()
        for descriptor in (self._orders, self.answers, self.pidfd):
            os.close(descriptor)
        return code

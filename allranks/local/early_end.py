"""How a run ends before its steps have: because somebody wants that, or because the disk is full.

Ctrl-C once asks the ranks that can save to do so and to end; twice, or when that takes too long, ends everything. A
rank can save if it catches SIGTERM, by which a node tells that it is about to be taken away: our trainers do from their
first step on, and so do scripts that were written for spot nodes. Who does not catch it is ended at once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from allranks.local import processes
from allranks.local.execution import StepExecution
from allranks.local.gang import RankGang
from allranks.local.launch import LAUNCHERS
from allranks.local.result import CANCELLED, FAILED, RETRYING, RUNNING, StepFailure

NOTICE_SECONDS = 30.0
"""That Azure's scheduled events give a spot node before it is taken away."""
_PASSING_ON = ("mpirun", "mpiexec", "prterun", "prted", "orted")  # on SIGTERM they end ranks, or tell theirs


class AgreedStop:
    """The state of a run that was told to stop."""

    def __init__(self) -> None:
        self.has_begun = False
        self._asked: list[StepExecution] = []
        self._signals = 0
        self._until = 0.0

    def note_signal(self) -> None:
        """Another signal has come; a handler calls this."""
        self._signals += 1

    def begin(self, executions: Iterable[StepExecution]) -> Collection[StepExecution]:
        """Ask those that can save; they, and the sweeps whose trials they are, go on for a while."""
        self.has_begun, self._until = True, time.monotonic() + NOTICE_SECONDS
        here = [one for one in executions if one.gang is not None and one.step.host.is_this_machine]
        for one in here:
            LAUNCHERS[one.step.distribution].note_stop(one.folder)
        self._asked = [one for one in here if one.gang is not None and ask_to_stop(one.gang)]
        return {*self._asked, *(one.parent for one in self._asked if one.parent is not None)}

    @property
    def is_over(self) -> bool:
        """Whether all that were asked have ended, or have to."""
        is_time_up = self._signals > 1 or time.monotonic() >= self._until
        return is_time_up or all(one.is_finished for one in self._asked)


def ask_to_stop(gang: RankGang) -> bool:
    """Send SIGTERM to the processes of a gang that catch it; whether there are any.

    Of processes that have started each other the first one is asked: torchrun tells its ranks, and a rank its own.
    """
    sessions = gang.pids
    own = [pid for pid in processes.every_pid() if _is_of(pid, sessions, gang.marker)]
    catching = {pid for pid in own if processes.catches(pid, signal.SIGTERM) and _name(pid) not in _PASSING_ON}
    first = [pid for pid in catching if not catching.intersection(processes.ancestors(pid))]
    for pid in first:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    gang.is_stopping = gang.is_stopping or bool(first)
    return bool(first)


def _is_of(pid: int, sessions: Collection[int], marker: bytes) -> bool:
    return processes.session_of(pid) in sessions or processes.carries(pid, marker)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def abandon_steps(executions: Iterable[StepExecution], why: str) -> None:
    """End what is not finished: what was running has failed for this reason. The disk may refuse to keep it."""
    for execution in executions:
        if execution.status in (RUNNING, RETRYING):
            execution.end(FAILED, StepFailure(why))
        elif not execution.is_finished:
            execution.end(CANCELLED)
        with suppress(OSError):
            execution.keep()

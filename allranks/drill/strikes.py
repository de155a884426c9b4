"""A fault on its way: waiting for its moment, striking, and what came of it."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from allranks.drill.faults import (
    AT_CHECKPOINT,
    AT_SAVE,
    AT_SECONDS,
    AT_SHARE,
    AT_STEP,
    ENGINE,
    FULL_DISK,
    SLOW,
    STOP,
    DrillFault,
)
from allranks.drill.progress import StepWatch
from allranks.drill.victims import RankProcess, are_gone, processes_of, send_signal, victims_of
from allranks.local.plan import PlannedStep

_WRITABLE = 2**16
"""Bytes that a file can still have on a disk that is full: what a rank prints goes on, a checkpoint does not."""

_SLOW_PERIOD = 0.5
"""Seconds in which a slowed process runs once: far below what a sentry takes for a process that stands still."""


@dataclass(slots=True)
class FaultStrike:
    """One fault of a run, from before it strikes until it was noticed.

    Times are monotonic seconds.

    Attributes:
        struck: when; None if its moment has not come.
        at_step: the last step of the training that was logged then, where any was.
        noticed: when the processes that ran then had all ended; None of what nobody noticed or had to.
        ended_by_drill: whether nobody noticed, and the drill itself has ended what had stopped.
        resumed_step: the checkpoint's step from which the next attempt went on; 0 where there was none, None unknown.
        corrupted: the file in which a bit was flipped.
        processes: how many were struck.
    """

    fault: DrillFault
    struck: float | None = None
    began: float = 0.0
    attempt: int = 0
    at_step: int | None = None
    noticed: float | None = None
    ended_by_drill: bool = False
    resumed_step: int | None = None
    corrupted: Path | None = None
    processes: int = 0
    victims: list[RankProcess] = field(default_factory=list)
    _witnesses: list[int] = field(default_factory=list)
    _is_held: bool = False
    _turn: float = 0.0

    def is_due(self, since: float, undisturbed: float, watch: StepWatch) -> bool:
        """Whether its moment has come; the step began at ``since`` and takes ``undisturbed`` seconds."""
        kind, value = self.fault.moment.kind, self.fault.moment.value
        if kind in (AT_SECONDS, AT_SHARE):
            after = value if kind == AT_SECONDS else value / 100 * undisturbed
            return time.monotonic() - since >= after
        if kind == AT_STEP:
            step = watch.trained_step
            return step is not None and step >= value
        return {AT_CHECKPOINT: watch.has_saved, AT_SAVE: watch.is_saving}[kind]()

    def strike(self, step: PlannedStep, marker: str, watch: StepWatch, end_engine: Callable[[], None]) -> bool:
        """Do it; False while there is nobody to strike yet."""
        running = processes_of(marker)
        if self.fault.victim == ENGINE:
            end_engine()
        else:
            self.victims = victims_of(self.fault, step, running)
            if not self.victims:
                return False
            if self.fault.action == FULL_DISK:
                self._limit_files(_WRITABLE)
            elif self.fault.action != SLOW:
                send_signal(signal.SIGSTOP if self.fault.action == STOP else signal.SIGKILL, self.victims)
        self.struck = time.monotonic()
        self.processes = len(self.victims) or 1
        self.at_step = watch.trained_step
        self._witnesses = [one.pid for one in running if one.rank is not None]
        return True

    def _limit_files(self, most: int | None) -> None:
        """Let no file of the victims, and of what they start, grow beyond so many bytes (EFBIG); None lifts that."""
        for victim in self.victims:
            with suppress(OSError):  # it has ended
                _, hard = resource.prlimit(victim.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))

    def look(self) -> None:
        """Note when all ranks that ran at the strike have ended; a full disk has room again when its time is up."""
        if self.fault.action == FULL_DISK and self.struck is not None and self.victims:
            if time.monotonic() - self.struck >= self.fault.seconds:
                self.release()
            return
        if self.struck is not None and self.noticed is None and self.fault.ends_attempt and are_gone(self._witnesses):
            self.noticed = time.monotonic()

    def note_resumption(self, watch: StepWatch, attempt: int) -> None:
        """Where no checkpoint's name has said it: the next attempt went on before the first step that it logs."""
        if self.resumed_step is None and self.at_step is not None and attempt > self.attempt:
            step = watch.trained_step
            self.resumed_step = None if step is None else max(0, step - 1)

    def end_unnoticed(self) -> None:
        """Kill what was stopped, and nobody has missed."""
        self.ended_by_drill = True
        send_signal(signal.SIGKILL, self.victims)

    def slow_down(self, step: PlannedStep, marker: str) -> None:
        """Hold up the victims but for their share of each half second; called many times a second."""
        now = time.monotonic()
        if self.struck is None or self.fault.action != SLOW or now < self._turn:
            return
        if self._is_held:
            send_signal(signal.SIGCONT, self.victims)
            self._turn = now + _SLOW_PERIOD / self.fault.factor
        else:
            self.victims = victims_of(self.fault, step, processes_of(marker))  # another attempt has others
            send_signal(signal.SIGSTOP, self.victims)
            self._turn = now + _SLOW_PERIOD * (1 - 1 / self.fault.factor)
        self._is_held = not self._is_held

    def release(self) -> None:
        """Let go of what is held."""
        if self.fault.action == FULL_DISK:
            self._limit_files(None)
            self.victims = []
        if self._is_held:
            send_signal(signal.SIGCONT, self.victims)
            self._is_held = False

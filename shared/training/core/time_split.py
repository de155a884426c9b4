"""Where the time of a rank goes: reading, computing, waiting for other ranks, saving; measured beside the loop.

Nothing here waits for a device or for another rank; a step costs a microsecond or two of clocks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import Self, TypeVar

from shared.distributed.liveness import note_progress

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Seconds of one rank.

    Attributes:
        data: until the next batch was there.
        compute: all the rest: forward and backward pass, optimizer, and what surrounds them.
        wait: for other ranks, and for what they exchange to travel.
        save: in which the training stood still for a checkpoint.
    """

    data: float = 0.0
    compute: float = 0.0
    wait: float = 0.0
    save: float = 0.0

    def __add__(self, other: TimeSplit) -> TimeSplit:
        return TimeSplit(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    @property
    def own(self) -> float:
        """Seconds in which the rank itself was busy with its steps: what it makes the others wait for."""
        return self.data + self.compute

    @property
    def total(self) -> float:
        """All of them."""
        return sum(astuple(self))

    def shares(self) -> dict[str, float]:
        """Part of each in all, 0 to 1, by name."""
        names = ("data", "compute", "wait", "save")
        return {name: seconds / max(self.total, 1e-9) for name, seconds in zip(names, astuple(self), strict=True)}


class ThreadClock:
    """Tells how long the thread that makes it has computed, or was kept from it because all processors were taken.

    The rest of the time it slept, in a loop that reads by itself mostly until another rank had sent something. The time
    without a processor is what Linux keeps in `/proc/thread-self/schedstat`, as proc(5) has it; elsewhere it counts as
    sleep.
    """

    def __init__(self) -> None:
        self._delays: int | None = None
        with suppress(OSError):
            self._delays = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def busy(self) -> float:
        """Seconds; the thread itself calls this."""
        if self._delays is None:
            return time.thread_time()
        return time.thread_time() + int(os.pread(self._delays, 128, 0).split()[1]) / 1e9

    def __del__(self) -> None:
        if self._delays is not None:
            os.close(self._delays)


class DataTimer:
    """Adds up how long a loop waits for its batches: `seconds`, and the part of them in which its thread slept."""

    def __init__(self) -> None:
        self.seconds = self.asleep = 0.0

    def watch(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Hand batches on, and time how long each takes to come."""
        end = object()
        while True:
            began, before = time.perf_counter(), time.thread_time()
            batch = next(batches, end)
            took = time.perf_counter() - began
            self.seconds += took
            self.asleep += max(0.0, took - (time.thread_time() - before))
            if batch is end:
                return
            note_progress()
            yield batch  # type: ignore[misc]  # it is none of ours


class RankClock:
    """Divides this rank's time between two reports.

    Without `waited`, which tells how long the rank has waited for others so far, it is what its thread slept, other
    than for data and in a save. That holds where the thread that asks computes by itself, as with torch on a CPU.
    """

    def __init__(self, data: DataTimer, waited: Callable[[], float] | None = None) -> None:
        self._data, self._waited, self._thread = data, waited or self._slept, ThreadClock()
        self._save = self._save_asleep = 0.0
        self._before = self._now()

    def restart(self) -> None:
        """Forget the time since the last report, other than for saving: it was not spent on steps."""
        wall, data, save, waited = self._now()
        saved = self._before[2]
        self._before = wall - (save - saved), data, saved, waited

    @contextmanager
    def saving(self) -> Iterator[Self]:
        """Count what happens inside as time for saving."""
        began, busy = time.perf_counter(), self._thread.busy()
        yield self
        took = time.perf_counter() - began
        self._save += took
        self._save_asleep += max(0.0, took - (self._thread.busy() - busy))

    def split(self) -> TimeSplit:
        """Give the time since the last call, divided."""
        now = self._now()
        wall, data, save, waited = (
            max(0.0, after - before) for after, before in zip(now, self._before, strict=True)
        )  # fmt: skip
        self._before = now
        wait = min(waited, max(0.0, wall - data - save))
        return TimeSplit(data, max(0.0, wall - data - save - wait), wait, save)

    def _now(self) -> tuple[float, float, float, float]:
        return time.perf_counter(), self._data.seconds, self._save, self._waited()

    def _slept(self) -> float:
        return time.perf_counter() - self._thread.busy() - self._data.asleep - self._save_asleep

"""Where the time of a rank goes: reading, computing, waiting for other ranks, saving; and which ranks are slow.

Nothing here waits for a device or for another rank; a step costs a microsecond or two of clocks.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass
from typing import Any, Final, Self, TypeVar

from shared.distributed import World
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
    """Adds up how long a loop waits for its batches: `seconds`, and the part of them in which its thread slept.

    Args:
        clock: seconds that have passed.
        computed: seconds that the calling thread has computed.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, computed: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock, self._computed = clock, computed
        self.seconds = self.asleep = 0.0

    def watch(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Hand batches on, and time how long each takes to come."""
        end = object()
        while True:
            began, before = self._clock(), self._computed()
            batch = next(batches, end)
            took = self._clock() - began
            self.seconds += took
            self.asleep += max(0.0, took - (self._computed() - before))
            if batch is end:
                return
            note_progress()
            yield batch  # type: ignore[misc]  # it is none of ours


class RankClock:
    """Divides this rank's time between two reports.

    Without `waited`, which tells how long the rank has waited for others so far, it is what its thread slept, other
    than for data and in a save. That holds where the thread that asks computes by itself, as with torch on a CPU.

    Args:
        data: the timer of the batches.
        waited: seconds that this rank has waited for others.
        clock: seconds that have passed.
        busy: seconds that the calling thread has computed or waited for a processor; None: of a `ThreadClock`.
    """

    def __init__(
        self,
        data: DataTimer,
        waited: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        busy: Callable[[], float] | None = None,
    ) -> None:
        self._data, self._waited = data, waited or self._slept
        self._clock, self._busy = clock, busy or ThreadClock().busy
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
        began, busy = self._clock(), self._busy()
        yield self
        took = self._clock() - began
        self._save += took
        self._save_asleep += max(0.0, took - (self._busy() - busy))

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
        return self._clock(), self._data.seconds, self._save, self._waited()

    def _slept(self) -> float:
        return self._clock() - self._busy() - self._data.asleep - self._save_asleep


SLOW_FACTOR: Final = 1.3
"""A rank whose own time is this many times the median is slow."""
_LEAST_EXCESS: Final = 0.1
"""Part of all time that the others have to lose by it: where everybody waits for the network, no rank is to blame."""
_WINDOW_SECONDS: Final = 10.0
"""Reports are put together until they are of so many seconds: a hiccup of the machine is lost in them."""
_WINDOWS: Final = 3
"""So many windows in a row have to say so."""


@dataclass(frozen=True, slots=True)
class SlowRank:
    """A rank that others wait for.

    Attributes:
        rank, node: which, from 0.
        factor: its own time, for data and computing, over the median of all ranks.
        data_share: part of its own time that it waited for data, 0 to 1.
        step: at which it was found.
    """

    rank: int
    node: int
    factor: float
    data_share: float
    step: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} on node {self.node} is {self.factor:.1f}x slower than the median: "
            f"data {self.data_share:.0%}, compute {1 - self.data_share:.0%} of its own time"
        )


class SlowRanks:
    """Names a rank when it has been slow for long, and again when it was not and is.

    The first window is left out: in it caches are filled and kernels are compiled.

    Args:
        ranks_per_node: of the launch.
        groups: ranks that compute alike and are compared with each other; None: all of them.
        window: seconds that are looked at together.
        windows: so many in a row are needed.
    """

    def __init__(
        self,
        ranks_per_node: int,
        groups: Sequence[Sequence[int]] | None = None,
        window: float = _WINDOW_SECONDS,
        windows: int = _WINDOWS,
    ) -> None:
        self._per_node, self._groups, self._window, self._needed = ranks_per_node, groups, window, windows
        self._splits: list[TimeSplit] = []
        self._streaks: dict[int, list[SlowRank]] = {}
        self._warm = False
        self.found: list[SlowRank] = []

    def add(self, splits: Sequence[TimeSplit], step: int) -> list[SlowRank]:
        """Take in what the ranks, in their order, have done up to a step; give those that are newly found slow."""
        self._splits = [a + b for a, b in zip(self._splits or [TimeSplit()] * len(splits), splits, strict=True)]
        if max(split.total for split in self._splits) < self._window:
            return []
        window, self._splits = self._splits, []
        if not self._warm:
            self._warm = True
            return []
        slow = {
            rank: seen
            for group in self._groups or [range(len(window))]
            for rank, seen in self._slow(window, group, step)
        }
        self._streaks = {rank: [*self._streaks.get(rank, []), seen] for rank, seen in slow.items()}
        new = [streak[-1] for streak in self._streaks.values() if len(streak) == self._needed]
        self.found += new
        return new

    def documents(self) -> list[dict[str, Any]]:
        """All that were found, as JSON."""
        return [asdict(rank) for rank in self.found]

    def _slow(self, window: list[TimeSplit], group: Sequence[int], step: int) -> list[tuple[int, SlowRank]]:
        # Of two ranks the faster one: with the mean of both, one that takes thrice as long is 1.5 times the median.
        median = statistics.median_low(window[rank].own for rank in group)
        return [
            (rank, SlowRank(rank, rank // self._per_node, mine.own / median, mine.data / mine.own, step))
            for rank, mine in ((rank, window[rank]) for rank in group)
            if mine.own > SLOW_FACTOR * median > 0 and mine.own - median > _LEAST_EXCESS * mine.total
        ]


class TimeReport:
    """Adds up the splits of all ranks on rank 0, over an epoch and over the run; `groups` see `SlowRanks`."""

    def __init__(self, world: World, groups: Sequence[Sequence[int]] | None = None) -> None:
        self._per_node = world.local_world_size
        self._slow = SlowRanks(self._per_node, groups)
        self._run: list[TimeSplit] = []
        self._epoch: list[TimeSplit] = []
        self._steps = 0

    def add(self, splits: Sequence[TimeSplit], steps: int, step: int) -> tuple[dict[str, float], list[SlowRank]]:
        """Take in what the ranks, in their order, did in so many `steps` up to a `step`.

        Gives metrics by name, seconds for each optimizer step and shares from 0 to 1, and ranks that are newly slow.
        """
        self._run, self._epoch = _sums(self._run, splits), _sums(self._epoch, splits)
        self._steps += steps
        numbers: dict[str, float] = {}
        for name in ("data", "compute", "wait", "save"):
            seconds = [getattr(split, name) / max(1, steps) for split in splits]
            numbers[f"time/{name}_s"] = statistics.fmean(seconds)
            if len(seconds) > 1:
                numbers |= {f"time/{name}_s_min": min(seconds), f"time/{name}_s_max": max(seconds)}
        shares = sum(splits, TimeSplit()).shares()
        return numbers | {f"time/{name}_share": share for name, share in shares.items()}, self._slow.add(splits, step)

    def end_epoch(self) -> list[str]:
        """Say how the time of an epoch's steps was divided, as the mean of all ranks, and begin the next."""
        total, self._epoch = sum(self._epoch, TimeSplit()), []
        if total.total == 0:
            return []
        return ["time " + ", ".join(f"{name} {share:.0%}" for name, share in total.shares().items())]

    def document(self) -> dict[str, Any]:
        """Give the seconds of each rank over the steps of this start, and the ranks that were slow, as JSON."""
        ranks = [
            {"rank": rank, "node": rank // self._per_node}
            | {f"{name}_s": round(seconds, 6) for name, seconds in asdict(split).items()}
            | {f"{name}_share": round(share, 6) for name, share in split.shares().items()}
            for rank, split in enumerate(self._run)
        ]
        return {"time": {"steps": self._steps, "ranks": ranks, "slow_ranks": self._slow.documents()}}


def _sums(before: Sequence[TimeSplit], more: Sequence[TimeSplit]) -> list[TimeSplit]:
    return [one + other for one, other in zip(before or [TimeSplit()] * len(more), more, strict=True)]

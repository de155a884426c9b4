"""Which ranks keep the others waiting, and what with."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from shared.training.core.time_split import TimeSplit

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

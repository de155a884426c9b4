"""The order of rows for reading whole shards one after another: a function of (seed, epoch, shards), by arithmetic.

The shards come in an order of their own in each epoch, and are taken in *groups* of about `group_rows` rows. Half of a
group's rows, drawn at random, are mixed with the half that the group before has left, the others with a half of the
group after. Such a *phase* needs two groups, so that no more are ever held; and no border keeps rows apart, as that of
a plain shuffle in windows does. Where all rows are one group, the order is a full shuffle.

Nothing is replayed to continue in the middle: the shards' sizes say which phase a place lies in, and the phase is made
of (seed, epoch, its number) alone.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from shared.data.dataset.order import RowNumbers

_OF_GROUP, _OF_PHASE = 1, 2
"""Words that keep the random numbers of two uses apart; not 0, which would be none to NumPy's seeds."""


class ShardOrder:
    """The order of the rows of one epoch.

    `shard_rows` are those of each shard of a split; a group ends with the shard that reaches a multiple of
    `group_rows`, 1 or more, so that it is at most one shard larger. `seed` and `epoch` are 0 or more.
    """

    def __init__(self, shard_rows: RowNumbers, group_rows: int, seed: int, epoch: int) -> None:
        self._seed = (seed, epoch)
        shards = np.random.default_rng(self._seed).permutation(len(shard_rows))
        rows = shard_rows[shards]
        _, firsts = np.unique((np.cumsum(rows) - rows) // group_rows, return_index=True)
        self._groups = np.split(shards, firsts[1:])
        self._rows, self._starts = shard_rows, np.cumsum(shard_rows) - shard_rows
        sizes = np.add.reduceat(rows, firsts)
        self._early = sizes // 2  # of each group, the rows that come in the phase of its own number
        self._early[-1] = sizes[-1]
        ends = np.cumsum(self._early + np.concatenate([[0], (sizes - self._early)[:-1]]))
        self._ends: list[int] = ends.tolist()  # of Python's numbers: a search costs a tenth of NumPy's
        self._made: dict[int, RowNumbers] = {}
        self._begin = 0  # where the phases that are made begin, and their rows, one phase after another
        self._joined = np.empty(0, np.int64)
        self._left = -1, np.empty(0, np.int64)

    def rows_between(self, first: int, last: int) -> RowNumbers:
        """Numbers of the rows that come at the places from `first` to before `last` of the epoch."""
        if not self._begin <= first <= last <= self._begin + len(self._joined):
            phases = self.phases_between(first, last)
            self._made = {phase: self._made[phase] if phase in self._made else self._phase(phase) for phase in phases}
            self._joined = np.concatenate(list(self._made.values()))
            self._begin = self._ends[phases.start] - len(self._made[phases.start])
        return self._joined[max(0, first - self._begin) : last - self._begin]

    def phases_between(self, first: int, last: int) -> range:
        """Numbers of the phases that some places lie in."""
        begin, end = max(0, first), min(last, self._ends[-1]) - 1
        return range(bisect_right(self._ends, begin), bisect_right(self._ends, end) + 1)

    def shards_of(self, phases: range) -> list[int]:
        """Numbers of the shards that some phases are made of, in the order in which they are needed."""
        return [int(shard) for group in self._groups[max(0, phases.start - 1) : phases.stop] for shard in group]

    def _phase(self, number: int) -> RowNumbers:
        before, late = self._left
        if number and before != number - 1:
            late = self._group(number - 1)[self._early[number - 1] :]
        group = self._group(number)
        early, self._left = group[: self._early[number]], (number, group[self._early[number] :])
        return self._mixed(np.concatenate([late, early]) if number else early, _OF_PHASE, number)

    def _group(self, number: int) -> RowNumbers:
        shards = self._groups[number].tolist()
        rows = [np.arange(self._starts[shard], self._starts[shard] + self._rows[shard]) for shard in shards]
        return self._mixed(np.concatenate(rows), _OF_GROUP, number)

    def _mixed(self, rows: RowNumbers, use: int, number: int) -> RowNumbers:
        return np.random.default_rng((*self._seed, use, number)).permutation(rows)

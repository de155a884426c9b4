"""Which shards a dataset gets: a function of the number of rows alone, so that every node works out the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SHARD_BYTES = 16 * 2**20
"""Of a shard's rows, where the user does not say how many it shall have."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """A shard to be written: its place in a split, the number of the unit that it lies in, and where it begins and ends.

    `last` is the row after its last.
    """

    split: str
    number: int
    unit: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first


def plan_split(split: str, units: Iterable[range], rows_per_shard: int) -> Iterator[ShardJob]:
    """Cut the rows of a split into shards, in order; none holds rows of two units."""
    pieces = ((unit, rows, first) for unit, rows in enumerate(units) for first in rows[::rows_per_shard])
    for number, (unit, rows, first) in enumerate(pieces):
        yield ShardJob(split, number, unit, first, min(first + rows_per_shard, rows.stop))

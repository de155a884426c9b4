"""Count, sum and sum of squares for each channel: collected shard by shard, merged in shard order, always float64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.index import Statistics


@dataclass(frozen=True, slots=True)
class Moments:
    """What mean and standard deviation are computed from; the channel is the last axis."""

    count: int
    sum: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> Moments:
        """Moments of an array of shape (N, ..., channels)."""
        values = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
        return cls(len(values), tuple(values.sum(0).tolist()), tuple(np.square(values).sum(0).tolist()))

    @classmethod
    def merge(cls, parts: Iterable[Moments]) -> Moments:
        """Moments of all parts together; the order of the parts decides the last bits."""
        parts = tuple(parts)
        total = np.add.reduce([part.sum for part in parts])
        squares = np.add.reduce([part.squares for part in parts])
        return cls(sum(part.count for part in parts), tuple(total.tolist()), tuple(squares.tolist()))

    def statistics(self) -> Statistics:
        """Mean and (population) standard deviation of each channel."""
        mean = np.array(self.sum) / self.count
        variance = np.array(self.squares) / self.count - np.square(mean)
        return Statistics(tuple(mean.tolist()), tuple(np.sqrt(np.maximum(variance, 0)).tolist()))

"""Count, mean and squared distances from it for each channel: collected chunk by chunk, merged in order, in float64.

Not sums of squares: of values that are far from 0 beside their deviation, such as times, these keep no digit of it, and
of equal values leave another deviation than 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Statistics

_EXACT_ROWS = 2**16
"""Rows of bytes whose squares a 32-bit sum can hold: 2**16 * 255**2 < 2**32."""


@dataclass(frozen=True, slots=True)
class Moments:
    """What mean and standard deviation are computed from; the channel is the last axis.

    Attributes:
        count: values of each channel.
        mean: of each channel.
        squares: sum of the squared distances from the mean, of each channel.
    """

    count: int
    mean: tuple[float, ...]
    squares: tuple[float, ...]

    @classmethod
    def of(cls, rows: npt.NDArray[Any]) -> Moments:
        """Moments of an array of shape (N, ..., channels), with one value or more for each channel."""
        channels = rows.shape[-1]
        count = rows.size // channels
        if rows.dtype == np.uint8 and len(rows) < _EXACT_ROWS:
            # Whole numbers, exact in any order: 20 times as fast as the way below, which would cost half of the
            # time that decoding takes.
            flat = rows.reshape(len(rows), -1)
            sums = flat.sum(0, dtype=np.uint32), np.square(flat, dtype=np.uint16).sum(0, dtype=np.uint32)
            total, squares = (some.astype(np.uint64).reshape(-1, channels).sum(0).tolist() for some in sums)
            apart = [(count * square - one**2) / count for one, square in zip(total, squares, strict=True)]
            return cls(count, tuple(one / count for one in total), tuple(apart))
        distances = rows.astype(np.float64)
        first = distances.reshape(-1, channels)[0].copy()
        distances -= first
        shift = _channel_sums(distances) / count
        distances -= shift
        return cls(count, tuple((first + shift).tolist()), tuple(_channel_sums(np.square(distances)).tolist()))

    @classmethod
    def merge(cls, parts: Iterable[Moments]) -> Moments:
        """Moments of all parts together, at least one; the order of the parts decides the last bits."""
        parts = tuple(parts)
        count, counts = sum(part.count for part in parts), np.array([[part.count] for part in parts], np.float64)
        means = np.array([part.mean for part in parts])
        mean = means[0] + (counts * (means - means[0])).sum(0) / count
        between = (counts * np.square(means - mean)).sum(0)
        within = np.add.reduce([part.squares for part in parts])
        return cls(count, tuple(mean.tolist()), tuple((within + between).tolist()))

    def statistics(self) -> Statistics:
        """Mean and (population) standard deviation of each channel."""
        return Statistics(self.mean, tuple(np.sqrt(np.array(self.squares) / self.count).tolist()))


def _channel_sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sums over all axes but the last; over the rows first, which are contiguous."""
    sums: npt.NDArray[np.float64] = values.reshape(len(values), -1).sum(0).reshape(-1, values.shape[-1]).sum(0)
    return sums

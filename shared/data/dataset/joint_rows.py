"""Rows of arrays that lie apart in memory, as one array: a batch from many shards is copied once, by one index.

An array whose rows overlap, a few bytes from one to the next, reaches all of them from the lowest address on. Only
those of its rows are ever read that are rows of a shard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.order import RowNumbers

_MOST_BYTES = 2**62
"""Of an array, by the product of its shape: bytes of rows that overlap count once for each."""


class JointRows:
    """The rows of some shards of a split, by their numbers in the split.

    `arrays` are those of the shards by number, C-contiguous, of one dtype and one shape of a row; `starts` are the
    numbers of the first rows of all shards of the split. `rows` must not be written to.

    Raises:
        OverflowError: if they lie too far apart for one array.
    """

    def __init__(self, arrays: Mapping[int, npt.NDArray[Any]], starts: RowNumbers) -> None:
        self.arrays = arrays
        one = next(iter(arrays.values()))
        row_bytes = one.dtype.itemsize * math.prod(one.shape[1:])
        places = {number: array.__array_interface__["data"][0] for number, array in arrays.items()}
        lowest = min(places.values())
        step = math.gcd(row_bytes, *(place - lowest for place in places.values())) or 1
        size = max(places[number] - lowest + array.nbytes for number, array in arrays.items())
        count = (size - row_bytes) // step + 1
        if count * row_bytes > _MOST_BYTES:
            raise OverflowError(f"shards lie up to {size} bytes apart")
        interface = {
            "version": 3,
            "typestr": one.dtype.str,
            "data": (lowest, False),
            "shape": (count, *one.shape[1:]),
            "strides": (step, *one.strides[1:]),
        }
        self.rows = np.asarray(_Addresses(interface, arrays))
        self._per_row = row_bytes // step
        self._offsets = np.zeros(len(starts), np.int64)
        for number, place in places.items():
            self._offsets[number] = (place - lowest) // step - int(starts[number]) * self._per_row

    def index(self, shards: RowNumbers, rows: RowNumbers) -> RowNumbers:
        """Where in `rows` of this object the rows of a split are, given the shard of each."""
        found: RowNumbers = self._offsets[shards] + rows * self._per_row
        return found


@dataclass(frozen=True, slots=True)
class _Addresses:
    """What NumPy makes an array of, which holds this object, and with it the arrays that lie there."""

    __array_interface__: dict[str, Any]
    arrays: Mapping[int, npt.NDArray[Any]]

"""Rows of different lengths: the values of all rows one after another, and where each begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.order import RowNumbers


@dataclass(frozen=True, slots=True)
class Ragged:
    """Row i is ``values[offsets[i] : offsets[i + 1]]``.

    Attributes:
        values: of any dtype, with one axis.
        offsets: (rows + 1,) int64, from 0 to ``len(values)``, never falling.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        """Refuse offsets that lead out of the values: they are read from a file.

        Raises:
            ValueError: if they do.
        """
        ends = self.offsets
        if ends[0] != 0 or ends[-1] != len(self.values) or (np.diff(ends) < 0).any():
            raise ValueError(f"its offsets do not lead from 0 to the {len(self.values)} values")

    @classmethod
    def of(cls, rows: list[npt.NDArray[Any]], dtype: str) -> Ragged:
        """Put rows together."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        values = np.concatenate(rows).astype(dtype, copy=False) if rows else np.empty(0, dtype)
        return cls(values, offsets)

    def row(self, number: int) -> npt.NDArray[Any]:
        """Values of one row; not a copy."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def lengths(self, rows: RowNumbers) -> npt.NDArray[np.int64]:
        """Number of values of each row."""
        result: npt.NDArray[np.int64] = self.offsets[rows + 1] - self.offsets[rows]
        return result

    def padded(self, rows: RowNumbers, width: int, padding: int) -> npt.NDArray[Any]:
        """Copy rows, each followed by padding: (len(rows), width); no row is longer than the width."""
        columns = np.arange(width)
        inside = columns < self.lengths(rows)[:, None]
        out = np.full((len(rows), width), padding, self.values.dtype)
        out[inside] = self.values[(self.offsets[rows][:, None] + columns)[inside]]
        return out

"""Rows kept in a temporary file without a name: written in any order, any of them read again, memory for a few."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.order import RowNumbers
from shared.distributed import Refusal

_NEAR_BYTES = 2**12
"""Rows that lie closer together are read with what lies between them: copying this much costs less than a call."""

_PIECE_BYTES = 2**20
"""Read at a time, then."""


class Spool:
    """Rows of one shape and dtype, appended one after another and then taken by number.

    The file lies in TMPDIR and has no name, so that nothing of it stays when the process ends, however it ends.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.rows = 0
        self._row_bytes = prod(shape) * self.dtype.itemsize
        self._file = tempfile.TemporaryFile(prefix="allranks-", buffering=0)  # noqa: SIM115  # it lives as long as this

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, key: slice | RowNumbers) -> npt.NDArray[Any]:
        """Copy rows of a slice (without a step), or by number in the order asked: an array (rows, *shape)."""
        if isinstance(key, slice):
            first, last, _ = key.indices(self.rows)
            return self._read(first, max(first, last))
        items = np.asarray(key)
        if len(items) and (np.ptp(items) + 1) * self._row_bytes <= _NEAR_BYTES * len(items):
            return self._take_near(items)
        file, size = self._file.fileno(), self._row_bytes
        # Not mapped: the kernel maps up to 2 MB around each row that is touched, and all of it counts to this process.
        rows = b"".join(os.pread(file, size, start) for start in (items * size).tolist())
        return np.frombuffer(rows, self.dtype).reshape(len(items), *self.shape)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end, as ``put`` does."""
        self.put(self.rows, rows)

    def put(self, first: int, rows: npt.NDArray[Any]) -> None:
        """Write rows from number ``first`` on, over what is there or behind it; they are cast to the spool's dtype.

        Raises:
            Refusal: if the disk is full.
        """
        assert rows.shape[1:] == self.shape, (rows.shape, self.shape)  # noqa: S101  # ours to keep
        data = np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data
        at = first * self._row_bytes
        try:
            while data:
                written = os.pwrite(self._file.fileno(), data, at)
                data, at = data[written:], at + written
        except OSError as error:
            raise Refusal(
                f"the temporary copy of the data in {tempfile.gettempdir()} cannot be written: {error.strerror}. "
                "Point TMPDIR to a disk with room for all rows."
            ) from error
        self.rows = max(self.rows, first + len(rows))

    def cut(self, rows: int) -> None:
        """Forget all but the first rows."""
        self._file.truncate(rows * self._row_bytes)
        self.rows = rows

    def blocks(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        """All rows in order, so many at a time."""
        return (self[first : first + rows] for first in range(0, self.rows, rows))

    def _take_near(self, items: RowNumbers) -> npt.NDArray[Any]:
        """Read from the first to the last of the rows once, and pick."""
        order = np.argsort(items, kind="stable")
        wanted = items[order]
        taken = np.empty((len(items), *self.shape), self.dtype)
        starts = range(int(wanted[0]), int(wanted[-1]) + 1, max(1, _PIECE_BYTES // max(1, self._row_bytes)))
        edges = [*np.searchsorted(wanted, np.asarray(starts)).tolist(), len(wanted)]
        for start, (first, last) in zip(starts, pairwise(edges), strict=True):
            if first < last:
                piece = self._read(start, int(wanted[last - 1]) + 1)
                taken[order[first:last]] = piece[wanted[first:last] - start]
        return taken

    def _read(self, first: int, last: int) -> npt.NDArray[Any]:
        rows = np.empty((last - first, *self.shape), self.dtype)
        data = rows.reshape(-1).view(np.uint8).data
        at = first * self._row_bytes
        while data:
            read = os.preadv(self._file.fileno(), [data], at)
            assert read, (first, last, self.rows)  # noqa: S101  # rows behind the last one were asked for
            data, at = data[read:], at + read
        return rows

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

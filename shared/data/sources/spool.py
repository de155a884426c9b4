"""Rows kept in a temporary file without a name while a source is read: any of them again, memory for a few."""

from __future__ import annotations

import os
import tempfile
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.order import Rows
from shared.distributed import Refusal


class Spool:
    """Rows of one shape and dtype, appended one after another and then taken by number.

    The file lies in TMPDIR and has no name, so that nothing of it stays when the process ends, however it ends.

    Args:
        shape: of one row.
        dtype: NumPy name of its type.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.rows = 0
        self._row_bytes = prod(shape) * self.dtype.itemsize
        self._file = tempfile.TemporaryFile(prefix="allranks-")  # noqa: SIM115  # it lives as long as the source

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows at the end; they are cast to the spool's dtype.

        Raises:
            Refusal: if the disk is full.
        """
        assert rows.shape[1:] == self.shape, (rows.shape, self.shape)  # noqa: S101  # ours to keep
        try:
            self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        except OSError as error:
            raise Refusal(
                f"the temporary copy of the data in {tempfile.gettempdir()} cannot be written: {error.strerror}. "
                "Point TMPDIR to a disk with room for all rows."
            ) from error
        self.rows += len(rows)

    def cut(self, rows: int) -> None:
        """Forget all but the first rows."""
        self._file.seek(rows * self._row_bytes)
        self._file.truncate()
        self.rows = rows

    def take(self, items: Rows) -> npt.NDArray[Any]:
        """Copy rows by number, in the order asked: an array (len(items), *shape)."""
        self._file.flush()
        file, size = self._file.fileno(), self._row_bytes
        # Not mapped: the kernel maps up to 2 MB around each row that is touched, and all of it counts to this process.
        rows = b"".join(os.pread(file, size, start) for start in (np.asarray(items) * size).tolist())
        return np.frombuffer(rows, self.dtype).reshape(len(items), *self.shape)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

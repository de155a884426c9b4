"""Mapping and reading `.npy` files of which is known what they hold."""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import tempfile
from contextlib import closing, suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.storage import RandomReads, open_file


def map_npy(path: Path, shape: tuple[int, ...], dtype: str, *, whole: bool = False) -> npt.NDArray[Any]:
    """Map a file; where it does not hold what is expected, give what it holds, C-contiguous and in native byte order.

    What is expected is compared as bytes: NumPy takes a header for Python and parses it, and the garbage that this
    leaves starts collections, of 0.2 s in a process that has torch.

    Args:
        path: of the file.
        shape: that is expected.
        dtype: name of the type that is expected.
        whole: have all of it in the system's memory by then, so that nobody waits for the disk.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is damaged.
    """
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    header = _npy_header(shape, dtype)
    size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size == size:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if whole:
                _read_pages(pages)  # before the header is looked at, which would bring the first 2 MiB in small pages
            if pages[: len(header)] == header:
                return np.frombuffer(pages, dtype, offset=len(header)).reshape(shape)
    return _plain(np.load(path, mmap_mode="r", allow_pickle=False))


def read_npy(path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
    """Read a file into memory, from storage that may fail for a moment; else as `map_npy`."""
    header, file = _npy_header(shape, dtype), RandomReads(path)
    try:
        content = file.read(0, file.size)
    finally:
        file.close()
    if content.startswith(header) and len(content) == len(header) + math.prod(shape) * np.dtype(dtype).itemsize:
        return np.frombuffer(content, dtype, offset=len(header)).reshape(shape)
    return _plain(np.load(io.BytesIO(content), allow_pickle=False))


class StoredRows:
    """The rows of a `.npy` file in storage that may fail for a moment, read when they are asked for.

    Mapped, they would be refused by some mounts, and end the process where one cannot give a page.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or its rows do not lie one after the other.
    """

    def __init__(self, path: Path) -> None:
        with open_file(path) as file:
            header = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
            self.shape, by_columns, self.dtype = header[np.lib.format.read_magic(file) != (1, 0)](file)
            self._path, self._start = path, file.tell()
            size = file.seek(0, os.SEEK_END)
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        if by_columns and self.ndim > 1:
            raise ValueError("its columns lie one after the other: save numpy.ascontiguousarray of it")
        if self.dtype.hasobject or size < self._start + self.size * self.dtype.itemsize:
            raise ValueError(f"it has {size:,} bytes, which are not {self.shape} of {self.dtype}")

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def __getitem__(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Read rows by number, neighbours at once."""
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        content = found.reshape(len(rows), math.prod(self.shape[1:])).view(np.uint8)
        with closing(RandomReads(self._path)) as file:
            for first, last in pairwise([0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]):
                wanted = content[first:last].data.cast("B")
                if wanted and file.read_into(wanted, self._start + int(rows[first]) * content.shape[1]) < len(wanted):
                    raise ValueError("it has become shorter meanwhile")
        return found


def is_local(data: Path) -> bool:
    """Whether a folder lies on the disk that temporary files lie on."""
    return data.stat().st_dev == os.stat(tempfile.gettempdir()).st_dev  # noqa: PTH116  # a text


@lru_cache(maxsize=256)
def _npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    buffer = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """C-contiguous, and in this machine's byte order."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def _read_pages(pages: mmap.mmap) -> None:
    """Read all pages, of 2 MiB where the file system has them: 200 MB are then mapped in 1 ms, and else in 20."""
    with suppress(OSError):  # a kernel that does not know them
        pages.madvise(mmap.MADV_HUGEPAGE)
    # One byte of each page: NumPy lets others compute while the disk answers, which mmap's own advice does not.
    np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE].max(initial=0)

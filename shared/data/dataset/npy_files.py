"""Mapping and reading `.npy` files of which is known what they hold."""

from __future__ import annotations

import io
import math
import mmap
import os
import resource
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.storage import RandomReads


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
    header = _npy_header(shape, dtype)
    size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
    with path.open("rb", buffering=0) as file:
        if file.read(len(header)) == header and os.fstat(file.fileno()).st_size == size:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if whole:
                _read_pages(pages)
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


def allow_open_files(count: int) -> None:
    """Raise this process's limit, as far as the system lets it: each mapped file is kept open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < (needed := count + 1024):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard)
        )


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

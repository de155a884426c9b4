"""Memory for copied rows, used again once nobody holds them: the system gives new memory page by page, slowly."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_MOST_FREE = 4
"""Buffers of a kind of row that are kept while nobody needs them."""

_Memory: TypeAlias = tuple[npt.NDArray[np.uint8], int]
"""Bytes, and where they lie: to ask an array for it costs as much as the rest of lending."""


class RowBuffers:
    """Lends memory for rows; safe to call from several threads."""

    def __init__(self) -> None:
        # Rows of one array come in equal numbers, but for the last of an epoch. A deque's methods are atomic.
        self._free: defaultdict[object, deque[_Memory]] = defaultdict(lambda: deque(maxlen=_MOST_FREE))

    def lend(self, rows: int, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Give an array with any content; its memory comes back when it and all views and tensors of it are gone."""
        shape, free = (rows, *row_shape), self._free[row_shape, dtype]
        size = math.prod(shape) * dtype.itemsize
        try:
            memory = free.popleft()
        except IndexError:
            memory = _new_memory(size)
        if memory[0].nbytes < size:
            memory = _new_memory(size)
        interface = {"version": 3, "typestr": dtype.str, "data": (memory[1], False), "shape": shape}
        return np.asarray(_Loan(interface, memory, free))


def _new_memory(size: int) -> _Memory:
    memory = np.empty(size, np.uint8)
    return memory, memory.ctypes.data


@dataclass(slots=True)
class _Loan:
    """What NumPy makes an array of: the array holds it, views hold the array, and with the last of them it ends."""

    __array_interface__: dict[str, Any]
    memory: _Memory
    free: deque[_Memory]

    def __del__(self) -> None:
        self.free.append(self.memory)

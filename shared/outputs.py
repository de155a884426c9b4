"""What a model gives for the rows of a split, in files: the ranks write as they go, one process reads piece by piece.

A file holds some rows of one rank, output by output: (outputs, rows). So a few outputs of all rows can be read as well
as all outputs of a few rows, and nobody holds the whole: a thousand classes of ten million rows are 40 GB.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.order import RowNumbers
from shared.storage import RandomReads, make_folder, write_bytes

ModelOutputs = npt.NDArray[np.floating[Any]]

_FILE_BYTES = 2**24
"""Outputs that are gathered in memory before a file of them is written."""
_HEADER_BYTES = 2**10
"""More than what a file has before its outputs."""


@dataclass(frozen=True, slots=True)
class OutputParts:
    """The outputs of a split's rows, in files of a folder that all nodes share; their names begin with `what`.

    Rank r has the batches r, r + world size, and so on.
    """

    folder: Path
    what: str
    world_size: int
    rows: int
    batch_size: int

    def batches(self, rank: int) -> list[RowNumbers]:
        """The batches of a rank, as row numbers; those of all ranks together are every row once."""
        starts = range(rank * self.batch_size, self.rows, self.world_size * self.batch_size)
        return [np.arange(start, min(start + self.batch_size, self.rows)) for start in starts]

    def write(self, rank: int, batches: Iterable[ModelOutputs], file_bytes: int = _FILE_BYTES) -> bool:
        """Write the outputs of a rank's batches, (rows, outputs) each; False at the first that are not all finite."""
        make_folder(self.folder)
        gathered: list[ModelOutputs] = []
        number = size = 0
        for outputs in batches:
            if not np.isfinite(outputs).all():
                return False
            gathered.append(outputs)
            size += outputs.nbytes
            if size >= file_bytes:
                self._write(rank, number, gathered)
                gathered, number, size = [], number + 1, 0
        if gathered:
            self._write(rank, number, gathered)
        return True

    def blocks(self) -> Iterator[tuple[RowNumbers, ModelOutputs]]:
        """Row numbers (n,) and their outputs (outputs, n), for each file."""
        for rows, file in self._files():
            with closing(file):
                yield rows, file.read(0, None)

    def _files(self) -> Iterator[tuple[RowNumbers, _OutputFile]]:
        for rank in range(self.world_size):
            left, number = np.concatenate([np.empty(0, np.int64), *self.batches(rank)]), 0
            while len(left):
                file = _OutputFile(self._path(rank, number))
                yield left[: file.shape[1]], file
                left, number = left[file.shape[1] :], number + 1

    def columns(self, first: int = 0, last: int | None = None) -> ModelOutputs:
        """The outputs from `first` up to `last` of all rows, in row order: (outputs, rows)."""
        columns: ModelOutputs | None = None
        for rows, file in self._files():
            with closing(file):
                some = file.read(first, last)
            columns = np.empty((len(some), self.rows), some.dtype) if columns is None else columns
            columns[:, rows] = some
        assert columns is not None  # noqa: S101  # a split has rows
        return columns

    def _write(self, rank: int, number: int, batches: list[ModelOutputs]) -> None:
        content = io.BytesIO()
        np.save(content, np.ascontiguousarray(np.concatenate(batches).T), allow_pickle=False)
        write_bytes(self._path(rank, number), content.getbuffer())

    def _path(self, rank: int, number: int) -> Path:
        return self.folder / f"{self.what}-{rank:05d}-{number:05d}.npy"


class _OutputFile:
    """One file of outputs (outputs, n), of which some outputs are read at a time.

    Attributes:
        shape: of the whole.
    """

    def __init__(self, path: Path) -> None:
        self._reads = RandomReads(path)  # mapped, a read that a mount fails would end the process with SIGBUS
        header = io.BytesIO(self._reads.read(0, _HEADER_BYTES))
        assert np.lib.format.read_magic(header) == (1, 0)  # noqa: S101  # what np.save writes here
        self.shape, _, self._type = np.lib.format.read_array_header_1_0(header)
        self._begin = header.tell()

    def read(self, first: int, last: int | None) -> ModelOutputs:
        """The outputs from `first` up to `last`."""
        start, stop, _ = slice(first, last).indices(self.shape[0])
        width = self.shape[1] * self._type.itemsize
        content = self._reads.read(self._begin + start * width, max(0, stop - start) * width)
        return np.frombuffer(content, self._type).reshape(-1, self.shape[1])

    def close(self) -> None:
        """Close the file."""
        self._reads.close()

"""Writing a prepared dataset, as planned: each file under its final name, and last the index, which names them."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import (
    INDEX_FILE,
    SPLITS,
    TOKENIZER_FILES,
    TOKENIZER_FOLDER,
    Array,
    Index,
    Shard,
    ShardFile,
    offsets_name,
)
from shared.data.dataset.ragged import Ragged
from shared.data.write.spool import Spool
from shared.storage import FrontToBack, RandomReads, list_folder, make_folder, remove_file, write_bytes

SHARD_BYTES = 16 * 2**20
"""Of a shard's rows, where the user does not say how many it shall have."""

_SKIPPED = "skipped.csv"
_COPY_BYTES = 2**22
_SHORT = "-short"
_OURS = re.compile(r"\w+-\d{5,}(-short)?\.npy")

_Chunk = Mapping[str, npt.NDArray[Any]]
"""Some rows: name of each array to its rows."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """A shard to be written: its place in a split, the number of the range of rows that it lies in, and its rows.

    They begin with `first` of that range's source; `last` is the row after its last.
    """

    split: str
    number: int
    unit: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.last - self.first


def plan_split(split: str, units: Iterable[range], rows_per_shard: int) -> Iterator[ShardJob]:
    """Cut the rows of a split into shards, in order; none holds rows of two units."""
    pieces = ((unit, rows, first) for unit, rows in enumerate(units) for first in rows[::rows_per_shard])
    for number, (unit, rows, first) in enumerate(pieces):
        yield ShardJob(split, number, unit, first, min(first + rows_per_shard, rows.stop))


def write_shard(
    folder: Path, split: str, number: int, *, rows: int, arrays: Mapping[str, Array], chunks: Iterable[_Chunk]
) -> Shard | None:
    """Write the rows of a shard chunk by chunk, so that memory holds one chunk, and return its record.

    Without any row nothing is written and there is no shard: None.

    The dataset's folder may be shared by nodes that write other shards at the same time. The chunks hold `rows` rows
    together, or fewer: files that cannot be used are found on the way. They have the arrays' shapes, and can be cast to
    their dtypes.
    """
    make_folder(folder / split)
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(closing(_NpyWriter(_shard_path(folder, split, name, number), rows, array)))
            for name, array in arrays.items()
        }
        for chunk in chunks:
            for name, writer in writers.items():
                writer.add(chunk[name])
        written = next(iter(writers.values())).written
        files = {name: writer.finish() for name, writer in writers.items() if written}
    return Shard(written, files) if written else None


def write_ragged_shard(
    folder: Path, split: str, number: int, *, x: Ragged, y: npt.NDArray[np.int64], arrays: Mapping[str, Array]
) -> Shard:
    """Write rows of different lengths and a label for each, at least one; otherwise as ``write_shard``."""
    return _write_offset_shard(folder, split, number, (len(x.values), [x.values]), x.offsets, y, arrays)


def write_picture_shard(
    folder: Path,
    split: str,
    number: int,
    *,
    pictures: Spool,
    offsets: npt.NDArray[np.int64],
    y: npt.NDArray[np.int64],
    arrays: Mapping[str, Array],
) -> Shard:
    """Write encoded pictures, whose bytes lie in `pictures` one after another, and a label for each, at least one.

    `offsets` say where each begins, and where the last ends. Otherwise as ``write_shard``.
    """
    values = pictures.rows, pictures.blocks(_COPY_BYTES)
    return _write_offset_shard(folder, split, number, values, offsets, y, arrays)


def _write_offset_shard(
    folder: Path,
    split: str,
    number: int,
    x: tuple[int, Iterable[npt.NDArray[Any]]],
    offsets: npt.NDArray[np.int64],
    y: npt.NDArray[np.int64],
    arrays: Mapping[str, Array],
) -> Shard:
    """Write a shard of rows that differ in length; of `x` the number of values, and the values."""
    make_folder(folder / split)
    parts = {
        "x": (*x, arrays["x"].dtype),
        offsets_name("x"): (len(offsets), [offsets], "int64"),
        "y": (len(y), [y], arrays["y"].dtype),
    }
    files = {}
    for name, (count, chunks, dtype) in parts.items():
        path = _shard_path(folder, split, name, number)
        with closing(_NpyWriter(path, count, Array((), dtype))) as writer:
            for values in chunks:
                writer.add(values)
            files[name] = writer.finish()
    return Shard(len(y), files)


def write_index(folder: Path, index: Index) -> None:
    """Write `index.json`: last of all, because it is what makes the folder a dataset."""
    write_bytes(folder / INDEX_FILE, index.to_json().encode())


def write_tokenizer(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a tokenizer into the dataset's folder for them."""
    make_folder(folder / TOKENIZER_FOLDER)
    for name, content in files.items():
        write_bytes(folder / TOKENIZER_FOLDER / name, content)


def write_skipped(folder: Path, skipped: Iterable[tuple[str, str]]) -> None:
    """Write `skipped.csv`: path and reason of each file that was left out."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("path", "reason"), *skipped])
    write_bytes(folder / _SKIPPED, text.getvalue().encode("utf-8", "backslashreplace"))


def remove_leftovers(folder: Path) -> None:
    """Remove what an interrupted attempt left in a dataset's folder: its index first, then its shards.

    Only files with names that we give are touched.
    """
    for name in (INDEX_FILE, _SKIPPED, *(f"{TOKENIZER_FOLDER}/{name}" for name in TOKENIZER_FILES)):
        remove_file(folder / name)
    for path in (path for split in SPLITS for path in list_folder(folder / split)):
        if _OURS.fullmatch(path.name):
            remove_file(path)


def _shard_path(folder: Path, split: str, name: str, number: int) -> Path:
    return folder / split / f"{name}-{number:05d}.npy"


class _NpyWriter:
    """One `.npy` file, written front to back (a mounted blob takes nothing else well) and hashed on the way."""

    def __init__(self, path: Path, rows: int, array: Array) -> None:
        self._path, self._rows, self._array = path, rows, array
        self._file = FrontToBack(path)
        self._unfinished = True
        self._hash = hashlib.sha256()
        self.written = 0
        self._data_start = self._header(rows)

    def add(self, rows: npt.NDArray[Any]) -> None:
        """Append rows."""
        assert rows.shape[1:] == self._array.shape, (rows.shape, self._array.shape)  # noqa: S101  # ours to keep
        self._write(np.ascontiguousarray(rows, self._array.dtype).data)
        self.written += len(rows)

    def finish(self) -> ShardFile:
        """Close it, and return its record."""
        self._file.finish()
        if self.written != self._rows:
            self._copy_under_true_header()
        self._unfinished = False
        return ShardFile(f"{self._path.parent.name}/{self._path.name}", self._hash.hexdigest())

    def close(self) -> None:
        """Remove an unfinished file: it is of no use."""
        self._file.abandon()
        if self._unfinished:
            remove_file(self._path)

    def _copy_under_true_header(self) -> None:
        """Write the file again, under another name, because its first bytes promise rows that did not come."""
        assert self.written < self._rows, (self.written, self._rows)  # noqa: S101  # ours to keep
        promised, self._path = self._path, self._path.with_stem(self._path.stem + _SHORT)
        self._hash = hashlib.sha256()
        with closing(RandomReads(promised)) as before:
            self._file = FrontToBack(self._path)
            self._header(self.written)
            for start in range(self._data_start, before.size, _COPY_BYTES):
                self._write(before.read(start, min(_COPY_BYTES, before.size - start)))
            self._file.finish()
        remove_file(promised)

    def _header(self, rows: int) -> int:
        """Write what says dtype and shape, and return its length."""
        descr = np.lib.format.dtype_to_descr(np.dtype(self._array.dtype))
        header = {"descr": descr, "fortran_order": False, "shape": (rows, *self._array.shape)}
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(buffer, header)
        self._write(buffer.getvalue())
        return buffer.tell()

    def _write(self, data: Any) -> None:
        self._hash.update(data)
        self._file.write(data)

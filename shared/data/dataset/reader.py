"""Reading a prepared dataset: small arrays whole, large ones memory-mapped, and one index per batch into all shards."""

from __future__ import annotations

import errno
import hashlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import SPLITS, TOKENIZER_FILE, Array, Index, Shard, offsets_name, read_index
from shared.data.dataset.npy_files import map_npy, read_npy
from shared.data.dataset.order import RowNumbers, batch_starts, epoch_order
from shared.data.dataset.pictures import decode_rows
from shared.data.dataset.ragged import Ragged
from shared.distributed import Refusal
from shared.distributed.wire import allow_open_files
from shared.storage import open_file

RowsBetween = Callable[[int, int], RowNumbers]
"""Rows from a place of an epoch to before another."""

RowCopier = Callable[[npt.NDArray[Any], RowNumbers], npt.NDArray[Any]]
"""Copies rows out of an array, in the order asked."""

FileReader = Callable[[Path, tuple[int, ...], str], npt.NDArray[Any]]
"""Reads a file of which the shape and the type are expected."""

HELD_ARRAY_BYTES = 32 * 2**20
"""An array of a split up to this size is read whole at its first use: labels nearly always are."""

HELD_SPLIT_BYTES = 256 * 2**20
"""Training reads a split up to this size from memory, unless it is told otherwise."""


@dataclass(frozen=True)
class Dataset:
    """A prepared dataset; open one with ``Dataset.open(folder)``.

    Attributes:
        access: ``auto`` holds small arrays in memory and maps large ones; ``memory`` holds all whose rows are of one
            length, ``random`` none but the small ones. The rows and their order are the same.
    """

    folder: Path
    index: Index
    access: str = "auto"

    @classmethod
    def open(cls, folder: str | Path) -> Dataset:
        """Open the dataset in a folder by reading its index; no shard is touched.

        Raises:
            Refusal: if the folder holds no finished dataset, or a damaged index.
        """
        return cls(Path(folder), read_index(Path(folder)))

    def split(self, name: str) -> Split:
        """Rows of ``train``, ``validation`` or ``test``.

        Raises:
            Refusal: if there is no such split, or if it is empty.
        """
        if name not in SPLITS:
            raise Refusal(f"there is no split {name!r}; choose one of {', '.join(SPLITS)}.")
        if not self.index.splits[name]:
            raise Refusal(f"the split {name!r} of {self.folder} is empty; prepare it with {name}_fraction above 0.")
        # Each mapped file is kept open.
        allow_open_files(sum(len(shard.files) for shard in self.index.splits[name]))
        return self._opened(name, self.index.text.padding if self.index.text else 0)

    def _opened(self, name: str, padding: int) -> Split:
        """Make a split that has rows."""
        return Split(name, self.folder, self.index.arrays, self.index.splits[name], padding, self.access)

    @property
    def train_digest(self) -> str:
        """What the rows for training are, by their bytes: other rows of the same shapes are another training."""
        return self.index.digest("train")

    def verify(self) -> None:
        """Compare every file with the sha256 in the index; reads the whole dataset.

        Raises:
            Refusal: naming the first file that is missing or differs.
        """
        for shard in (shard for shards in self.index.splits.values() for shard in shards):
            for file in shard.files.values():
                if _sha256(self.folder / file.path) != file.sha256:
                    raise Refusal(f"{self.folder / file.path} is not the file that was prepared: its sha256 differs.")
        text = self.index.text
        if text and text.sha256 and _sha256(path := self.folder / text.tokenizer / TOKENIZER_FILE) != text.sha256:
            raise Refusal(f"{path} is not the tokenizer that the data was prepared with: its sha256 differs.")


@dataclass
class Split:
    """Rows of one split, numbered from 0; make one with ``Dataset.split``."""

    name: str
    folder: Path
    arrays: Mapping[str, Array]
    shards: tuple[Shard, ...]
    padding: int = 0
    access: str = "auto"
    _held: dict[str, npt.NDArray[Any]] = field(default_factory=dict, init=False, repr=False)
    _open: dict[tuple[str, int], npt.NDArray[Any]] = field(default_factory=dict, init=False, repr=False)
    _ragged: dict[tuple[str, int], Ragged] = field(default_factory=dict, init=False, repr=False)
    _joint: dict[str, JointRows] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._ends = np.cumsum([shard.rows for shard in self.shards])
        self._starts = np.concatenate([[0], self._ends])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._ends[-1])

    def __len__(self) -> int:
        return self.rows

    @property
    def held(self) -> bool:
        """Whether every array is read whole at its first use, so that there is nothing to read ahead."""
        return all(self._is_held(name) for name in self.arrays)

    def for_training(self) -> Split:
        """The same rows, which memory holds if they are few and nobody has said how they are to be read."""
        row_bytes = sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in self.arrays.values())
        few = self.access == "auto" and self.rows * row_bytes <= HELD_SPLIT_BYTES
        return replace(self, access="memory") if few else self

    @property
    def order_name(self) -> int | str:
        """What a training has to have in common with the one that it continues: its rows, and how they are ordered."""
        return self.rows

    def batches(self, *, batch_size: int, seed: int, epoch: int, start_batch: int = 0) -> Iterator[RowNumbers]:
        """Global batches of an epoch, from the batch ``start_batch`` on; the last partial one is dropped.

        Raises:
            ValueError: if not even one batch fits into the rows.
        """
        starts = batch_starts(self.rows, batch_size, start_batch)
        rows_between = self.epoch_places(seed, epoch)
        return (rows_between(start, start + batch_size) for start in starts)

    def batches_together(
        self, count: int, *, batch_size: int, seed: int, epoch: int, start_batch: int, stop_batch: int
    ) -> Iterator[RowNumbers]:
        """Give those of `batches` from one to before another, so many at a time: (count or fewer, batch_size)."""
        starts = batch_starts(self.rows, batch_size, start_batch)[: stop_batch - start_batch]
        rows_between = self.epoch_places(seed, epoch)
        together = (starts[first : first + count] for first in range(0, len(starts), count))
        return (rows_between(some[0], some[-1] + batch_size).reshape(-1, batch_size) for some in together)

    def epoch_places(self, seed: int, epoch: int) -> RowsBetween:
        """Give what says which rows come at some places of an epoch; it is asked for one place after the other."""
        order = epoch_order(self.rows, seed, epoch)
        return lambda first, last: order[first:last]

    def take(self, indices: RowNumbers, copy: RowCopier = operator.getitem) -> dict[str, npt.NDArray[Any]]:
        """Copy rows out of every array, in the order asked: name to an array of shape (len(indices), *shape).

        Rows of a ragged array come as (len(indices), longest of these), filled up with ``padding``, and ``lengths``
        (len(indices),) int64 says how much of each is its own. Safe to call from several threads. Another ``copy`` than
        NumPy's may be faster; it is given arrays that must not be written to.

        Raises:
            IndexError: if a row number is negative or too large.
            Refusal: if a shard is missing or not what the index says.
        """
        indices = np.asarray(indices)
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.rows:
            raise IndexError(
                f"rows {indices.min()} to {indices.max()} asked of {self.name}, which has rows 0 to {self.rows - 1}"
            )
        if self.held:
            return {name: copy(self._whole(name), indices) for name in self.arrays}
        shards = np.searchsorted(self._ends, indices, side="right")
        needed = set(np.flatnonzero(np.bincount(shards)).tolist()) or {0}  # no rows have a type as well
        taken: dict[str, npt.NDArray[Any]] = {}
        for name, array in self.arrays.items():
            if array.ragged:
                taken[name], taken["lengths"] = self._pad(name, indices, shards)
            elif self._is_held(name):
                taken[name] = copy(self._whole(name), indices)
            elif array.is_encoded:
                taken[name] = self._decode(name, indices, shards)
            else:
                taken[name] = self._copied(name, indices, shards, needed, copy)
        return taken

    def _is_held(self, name: str) -> bool:
        array = self.arrays[name]
        size = self.rows * math.prod(array.shape) * np.dtype(array.dtype).itemsize
        whole = self.access == "memory" and not array.is_encoded  # of pictures, memory holds the bytes
        return not array.ragged and (size <= HELD_ARRAY_BYTES or whole)

    def _whole(self, name: str) -> npt.NDArray[Any]:
        if name not in self._held:
            array = self.arrays[name]
            if array.is_encoded:
                every = np.arange(self.rows)
                of = np.searchsorted(self._ends, every, side="right")
                return self._held.setdefault(name, self._decode(name, every, of))
            whole = np.empty((self.rows, *array.shape), array.dtype)
            for number, shard in enumerate(self.shards):  # not mapped: where a mount fails, that would kill the process
                rows = self._load(name, number, (shard.rows, *array.shape), array.dtype, read_npy)
                whole[self._starts[number] : self._ends[number]] = rows
            self._held[name] = whole
        return self._held[name]

    def _copied(
        self, name: str, indices: RowNumbers, shards: RowNumbers, needed: set[int], copy: RowCopier
    ) -> npt.NDArray[Any]:
        """Copy rows of shards that are mapped, all by one index."""
        try:
            joint = self._joint_rows(name, needed)
        except OverflowError:
            return self._gather(name, indices, shards)
        return copy(joint.rows, joint.index(shards, indices))

    def _joint_rows(self, name: str, needed: set[int]) -> JointRows:
        """Give what joins the shards that are needed, and others that are open."""
        joint = self._joint.get(name)
        if joint is None or not needed <= joint.arrays.keys():
            numbers = needed.union(joint.arrays if joint else ())
            joint = self._joint[name] = JointRows({n: self._shard(name, n) for n in numbers}, self._starts)
        return joint

    def _gather(self, name: str, indices: RowNumbers, shards: RowNumbers) -> npt.NDArray[Any]:
        """Collect rows shard by shard, where memory has them too far apart for one array."""
        array = self.arrays[name]
        found = np.empty((len(indices), *array.shape), array.dtype)
        for number in np.unique(shards).tolist():
            of = shards == number
            found[of] = self._shard(name, number)[indices[of] - self._starts[number]]
        return found

    def _pad(
        self, name: str, indices: RowNumbers, shard_of: RowNumbers
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Collect ragged rows shard by shard: twice, because the longest decides on the width."""
        places = {number: np.flatnonzero(shard_of == number) for number in np.unique(shard_of).tolist()}
        rows = {n: indices[place] - self._starts[n] for n, place in places.items()}
        lengths = np.zeros(len(indices), np.int64)
        for number, place in places.items():
            lengths[place] = self._ragged_shard(name, number).lengths(rows[number])
        width = int(lengths.max(initial=0))
        padded = np.empty((len(indices), width), self.arrays[name].dtype)
        for number, place in places.items():
            padded[place] = self._ragged_shard(name, number).padded(rows[number], width, self.padding)
        return padded, lengths

    def _decode(self, name: str, indices: RowNumbers, shards: RowNumbers) -> npt.NDArray[Any]:
        """Decode pictures, shard by shard."""
        array = self.arrays[name]
        pictures = np.empty((len(indices), *array.shape), array.dtype)
        for number in np.unique(shards).tolist():
            path, stored = self.folder / self.shards[number].files[name].path, self._ragged_shard(name, number)
            places = np.flatnonzero(shards == number)
            rows = (indices[places] - self._starts[number]).tolist()
            decode_rows(path, stored, rows, array, [pictures[place] for place in places.tolist()])
        return pictures

    def _ragged_shard(self, name: str, number: int) -> Ragged:
        if (name, number) not in self._ragged:
            self._ragged[name, number] = self._open_ragged(name, number)
        return self._ragged[name, number]

    def _open_ragged(self, name: str, number: int) -> Ragged:
        read = read_npy if self.access == "memory" and self.arrays[name].is_encoded else None
        offsets = self._load(offsets_name(name), number, (self.shards[number].rows + 1,), "int64", read)
        values = self._load(name, number, (int(offsets[-1]),), self.arrays[name].dtype, read)
        try:
            return Ragged(values, offsets)
        except ValueError as error:
            path = self.folder / self.shards[number].files[offsets_name(name)].path
            raise Refusal(f"{path} is damaged: {error}. Prepare the data again.") from error

    def _shard(self, name: str, number: int) -> npt.NDArray[Any]:
        if (name, number) not in self._open:
            self._open[name, number] = self._map(name, number)
        return self._open[name, number]

    def _map(self, name: str, number: int) -> npt.NDArray[Any]:
        array = self.arrays[name]
        return self._load(name, number, (self.shards[number].rows, *array.shape), array.dtype)

    def _load(
        self, file: str, number: int, shape: tuple[int, ...], dtype: str, read: FileReader | None = None
    ) -> npt.NDArray[Any]:
        """Map one file of a shard, or read it otherwise, and see that it holds what the index says."""
        path, again = self.folder / self.shards[number].files[file].path, "Prepare the data again."
        try:
            mapped = read(path, shape, dtype) if read else self._read_file(path, shape, dtype)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise Refusal(f"{path} cannot be read: {error.strerror or error}. {again}") from error
            raise Refusal(
                f"{self.name} has more shards than this process may open files: "
                "raise `ulimit -n`, or prepare the data with more rows_per_shard."
            ) from error
        except ValueError as error:
            raise Refusal(f"{path} is damaged: {error}. {again}") from error
        if (mapped.shape, mapped.dtype.name) != (shape, dtype):
            raise Refusal(f"{path} holds {mapped.dtype.name} {mapped.shape}; the index says {dtype} {shape}.")
        return mapped

    def _read_file(self, path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        return map_npy(path, shape, dtype)


def _sha256(path: Path) -> str:
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise Refusal(f"{path} is missing from the dataset.") from error
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}. Prepare the data again.") from error


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

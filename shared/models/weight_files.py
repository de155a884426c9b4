"""Weights as Hugging Face keeps them: safetensors files of a bounded size, and an index that says what is in which.

Files are written from front to back under their final names, a slab of a tensor at a time, so that nobody has to have a
whole tensor; mounted stores neither rename nor seek. The index comes last: without it there is no model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import torch
from safetensors import SafetensorError, safe_open

from .stored import MOST_JSON_BYTES, make_refusal, read_stored

WHOLE_NAME: Final = "model.safetensors"
INDEX_NAME: Final = "model.safetensors.index.json"
SLAB_BYTES: Final = 4 * 2**20
"""How much of a tensor is read or written at once: what is mapped of a file counts as memory of the process."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A whole tensor as it is in a file."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file and the tensors in it, in their order."""

    name: str
    tensors: tuple[SavedTensor, ...]

    def header(self) -> bytes:
        """What stands before the tensors."""
        from shared.tensors import encode_header, type_of  # a saved model's own copy of this file only reads

        entries = [(tensor.name, type_of(tensor), tensor.shape) for tensor in self.tensors]
        return encode_header(entries, {"format": "pt"})


def divide_tensors(tensors: Sequence[SavedTensor], most_bytes: float) -> list[WeightFile]:
    """Say which tensors are in which file, none larger than `most_bytes` unless a single tensor is.

    The widest types come first in a file, as in those of the safetensors library, so that all are aligned.
    """
    groups: list[list[SavedTensor]] = [[]]
    size = 0
    for tensor in tensors:
        if groups[-1] and size + tensor.nbytes > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.nbytes
    ordered = [tuple(sorted(group, key=lambda one: -one.dtype.itemsize)) for group in groups]
    if len(ordered) == 1:
        return [WeightFile(WHOLE_NAME, ordered[0])]
    count = len(ordered)
    return [WeightFile(f"model-{n:05d}-of-{count:05d}.safetensors", group) for n, group in enumerate(ordered, 1)]


def write_index(folder: Path, files: Sequence[WeightFile]) -> None:
    """Write the index of several files; one file has none."""
    if len(files) > 1:
        total = sum(tensor.nbytes for file in files for tensor in file.tensors)
        places = {tensor.name: file.name for file in files for tensor in file.tensors}
        text = json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}, indent=2)
        from shared.storage import write_text

        write_text(folder / INDEX_NAME, text + "\n")


def row_slabs(shape: Sequence[int], row_bytes_of: int, most_bytes: int = SLAB_BYTES) -> Iterator[slice]:
    """Divide the first axis of a block so that each part has at most `most_bytes`, or is one row; a number is one.

    An element has `row_bytes_of` bytes.
    """
    if not shape:
        yield slice(0, 1)
        return
    row = math.prod(shape[1:]) * row_bytes_of
    rows = max(1, most_bytes // max(1, row))
    for start in range(0, shape[0], rows):
        yield slice(start, min(start + rows, shape[0]))


class FileWriter:
    """Writes a file of weights from front to back; a context manager."""

    def __init__(self, folder: Path, file: WeightFile) -> None:
        self._path, self._header = folder / file.name, file.header()

    def __enter__(self) -> Self:
        from shared.storage import FrontToBack  # as in `header`

        self._file = FrontToBack(self._path)
        self._file.write(self._header)
        return self

    def write(self, values: torch.Tensor) -> None:
        """Write the next values: contiguous, of the file's type, on the CPU."""
        self._file.write(values.reshape(-1).view(torch.uint8).numpy().data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._file.finish_streamed()
        finally:
            self._file.abandon()


class WeightReader:
    """Reads parts of the tensors in a folder; `shapes` and `dtypes` are those of the whole tensors, by name.

    Raises:
        Refusal: if there are no weights, or not all that the index names.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, torch.dtype] = {}
        self._files: dict[str, Path] = {}
        for path in weight_paths(folder):
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118  # it is no dictionary
                    found = file.get_slice(name)
                    self.shapes[name], self._files[name] = tuple(found.get_shape()), path
                    self.dtypes[name] = (found[:0] if self.shapes[name] else file.get_tensor(name)).dtype

    def read(self, name: str, values: torch.Tensor, offset: Sequence[int]) -> None:
        """Fill `values` with the part of a tensor that begins at `offset`, in the type of `values`.

        A file is opened anew for each slab, so that no more than that of it is in memory.
        """
        path = self._files[name]
        across = tuple(slice(start, start + size) for start, size in zip(offset, values.shape, strict=True))
        for rows in row_slabs(values.shape, 4):
            with _opened(path) as file:
                if not across:
                    values.copy_(file.get_tensor(name))
                    continue
                there = slice(offset[0] + rows.start, offset[0] + rows.stop)
                values[rows].copy_(file.get_slice(name)[(there, *across[1:])])

    def read_range(self, name: str, values: torch.Tensor, start: int) -> None:
        """Fill `values`, one axis, with what begins at element `start` of a flattened tensor."""
        shape, stop = self.shapes[name], start + values.numel()
        if len(shape) < 2:
            self.read(name, values, (start,))
            return
        row = math.prod(shape[1:])
        first = start // row
        for rows in row_slabs((-(-stop // row) - first, row), 4):
            begin, end = (first + rows.start) * row, (first + rows.stop) * row
            low, high = max(start, begin), min(stop, end)
            with _opened(self._files[name]) as file:
                found = file.get_slice(name)[first + rows.start : first + rows.stop].reshape(-1)
                values[low - start : high - start].copy_(found[low - begin : high - begin])


def weight_paths(folder: Path) -> list[Path]:
    """List the files in which the weights of a folder are, as transformers chooses them.

    Raises:
        Refusal: if there are none, or if the index cannot be read.
    """
    index = folder / INDEX_NAME
    if (folder / WHOLE_NAME).is_file():
        return [folder / WHOLE_NAME]
    if index.is_file():
        return [folder / name for name in sorted(set(_weight_map(index).values()))]
    raise make_refusal(f"{folder} holds no weights: there is neither {WHOLE_NAME} nor {INDEX_NAME}.")


def _opened(path: Path) -> Any:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise make_refusal(f"{path} cannot be read: it is not a file.")
    try:
        return safe_open(path, "pt")
    except (OSError, SafetensorError) as error:
        raise make_refusal(f"{path} cannot be read: {error}.") from error


def _weight_map(index: Path) -> Mapping[str, str]:
    try:
        found: Mapping[str, str] = json.loads(read_stored(index, MOST_JSON_BYTES))["weight_map"]
        return {str(name): Path(file).name for name, file in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise make_refusal(f"{index} is no index of weights: {error!r}.") from error

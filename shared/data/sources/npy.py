"""A folder with `x.npy` (the rows) and `y.npy` (their labels or, for regression, their targets)."""

from __future__ import annotations

import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.npy_files import StoredRows, is_local
from shared.data.dataset.order import RowNumbers
from shared.data.formats.file_format import find_file_fault
from shared.data.write.request import BadFiles, ItemSource, SourceRequest
from shared.data.write.splits import Labels
from shared.distributed import Refusal


@dataclass(frozen=True, kw_only=True)
class Npy(ItemSource):
    """Rows in `x.npy`: features (N, F), grayscale images (N, H, W), images (N, H, W, C), or any further axes.

    The classes are the different values in `y.npy`, whole numbers or texts, in ascending order.
    """

    file: Path

    @classmethod
    def open(cls, request: SourceRequest) -> Npy:
        """Read the labels; the rows are only mapped.

        Raises:
            Refusal: if a file is missing, or of a shape or dtype that cannot be used.
        """
        request.refuse_image_size()
        folder = request.needed_folder()
        x, y = _open_rows(folder / "x.npy"), _read_all(folder / "y.npy")
        if x.dtype.kind not in "buif":
            raise Refusal(f"{folder / 'x.npy'} holds {x.dtype}; numbers are needed.")
        kinds, wanted = ("iubU", "whole number or text") if request.task == "classification" else ("iuf", "number")
        if request.task == "classification" and y.ndim == 1 and _is_whole(y):
            y = y.astype(np.int64)
        if y.ndim != 1 or y.dtype.kind not in kinds:
            hint = " For numbers with a fraction choose task regression." if y.dtype.kind == "f" else ""
            if y.ndim == 2 and request.task == "classification":
                hint = " Of one column for each class save y.argmax(1)."
            raise Refusal(f"{folder / 'y.npy'} holds {y.dtype} {y.shape}; one {wanted} for each row is needed.{hint}")
        if x.ndim < 2 or len(x) != len(y) or x.size == 0:
            raise Refusal(f"x.npy {x.shape} and y.npy {y.shape} in {folder} do not hold the same rows, one or more.")
        classes, labels = _targets(folder / "y.npy", y) if request.task == "regression" else _classes(y)
        array = Array(x.shape[1:] if x.ndim != 3 else (*x.shape[1:], 1), x.dtype.name)
        return cls(file=folder / "x.npy", labels=labels, classes=classes, array=array, task=request.task)

    def where(self, item: int) -> str:
        """Number of a row."""
        return f"{self.file}, row {item}"

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Rows by number.

        Raises:
            Refusal: if one holds a value that is not a finite number.
        """
        # it is one file: without it there is nothing
        # Mapped anew each time: the pages that were touched then count to this process no longer than needed.
        rows = _open_rows(self.file)[items].reshape(len(items), *self.array.shape).astype(self.array.dtype, copy=False)
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            worst = items[np.argmin(np.isfinite(rows).reshape(len(items), -1).all(1))]
            raise Refusal(f"{self.file}: row {worst} holds a value that is not a finite number.")
        return rows


def _is_whole(y: npt.NDArray[Any]) -> bool:
    return y.dtype.kind == "f" and bool(np.isfinite(y).all()) and bool((np.trunc(y) == y).all())


def _read_all(file: Path) -> npt.NDArray[Any]:
    rows = _open_rows(file)
    return rows[np.arange(len(rows))] if isinstance(rows, StoredRows) else rows


def _classes(y: npt.NDArray[Any]) -> tuple[tuple[str, ...], Labels]:
    values, labels = np.unique(y, return_inverse=True)
    return tuple(str(value) for value in values.tolist()), labels.astype(np.int64)


def _targets(file: Path, y: npt.NDArray[Any]) -> tuple[tuple[str, ...], Labels]:
    targets = y.astype(np.float64)
    if not np.isfinite(targets).all():
        raise Refusal(f"{file}: row {np.isfinite(targets).argmin()} is not a finite number.")
    return (), targets


def _open_rows(file: Path) -> npt.NDArray[Any] | StoredRows:
    if not file.is_symlink() and not file.exists():
        raise Refusal(f"{file} is missing: dataset npy reads x.npy and y.npy.")
    if fault := find_file_fault(file):
        raise Refusal(f"{file} {fault}.")
    try:
        if not is_local(file):
            return StoredRows(file)
        loaded: Any = np.load(file, mmap_mode="r", allow_pickle=False)
    # NumPy parses the header as Python's source, and lets through what its parser and its arithmetic raise.
    except (OSError, EOFError, ValueError, TypeError, SyntaxError, tokenize.TokenError, OverflowError) as error:
        raise Refusal(f"{file} cannot be read: {error}") from error
    if not isinstance(loaded, np.ndarray):  # NumPy goes by a file's first bytes
        raise Refusal(f"{file} is an archive of arrays (.npz), not one array: save it with numpy.save.")
    array: npt.NDArray[Any] = loaded
    return array

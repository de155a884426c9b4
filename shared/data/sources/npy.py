"""A folder with `x.npy` (the rows) and `y.npy` (their labels)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.index import Array
from shared.data.order import Rows
from shared.data.sources.source import Request
from shared.distributed import Refusal


@dataclass(frozen=True)
class Npy:
    """Rows in `x.npy`: features (N, F), grayscale images (N, H, W), images (N, H, W, C), or any further axes.

    The classes are the different values in `y.npy`, whole numbers or texts, in ascending order.
    """

    file: Path
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    array: Array
    decodes: bool = False

    @classmethod
    def open(cls, request: Request) -> Npy:
        """Read the labels; the rows are only mapped.

        Raises:
            Refusal: if a file is missing, or of a shape or dtype that cannot be used.
        """
        request.refuse_image_size()
        folder = request.needed_folder()
        x, y = _load(folder / "x.npy"), _load(folder / "y.npy")
        if x.dtype.kind not in "buif":
            raise Refusal(f"{folder / 'x.npy'} holds {x.dtype}; numbers are needed.")
        if y.ndim != 1 or y.dtype.kind not in "iubU":
            raise Refusal(
                f"{folder / 'y.npy'} holds {y.dtype} {y.shape}; one whole number or text for each row is needed."
            )
        if x.ndim < 2 or len(x) != len(y) or x.size == 0:
            raise Refusal(f"x.npy {x.shape} and y.npy {y.shape} in {folder} do not hold the same rows, one or more.")
        values, labels = np.unique(y, return_inverse=True)
        shape = x.shape[1:] if x.ndim != 3 else (*x.shape[1:], 1)
        classes = tuple(str(value) for value in values.tolist())
        return cls(folder / "x.npy", labels.astype(np.int64), classes, Array(shape, x.dtype.name))

    @cached_property
    def _rows(self) -> npt.NDArray[Any]:
        return _load(self.file)

    def read(self, items: Rows) -> npt.NDArray[Any]:
        """Rows by number.

        Raises:
            Refusal: if one holds a value that is not a finite number.
        """
        rows = self._rows[items].reshape(len(items), *self.array.shape).astype(self.array.dtype, copy=False)
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            bad = items[np.argmin(np.isfinite(rows).reshape(len(items), -1).all(1))]
            raise Refusal(f"{self.file}: row {bad} holds a value that is not a finite number.")
        return rows


def _load(file: Path) -> npt.NDArray[Any]:
    try:
        loaded: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise Refusal(f"{file} is missing: dataset npy reads x.npy and y.npy.") from error
    except (OSError, ValueError) as error:
        raise Refusal(f"{file} cannot be read: {error}") from error
    return loaded

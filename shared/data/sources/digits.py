"""Handwritten digits: 1,797 real images of 8x8, which come with scikit-learn. Needs no files and no network."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.write.request import BadFiles, ItemSource, SourceRequest
from shared.distributed import Refusal


@dataclass(frozen=True, kw_only=True)
class Digits(ItemSource):
    """The images (1797, 8, 8, 1), uint8, in memory."""

    images: npt.NDArray[np.uint8]

    def where(self, item: int) -> str:
        """Number of an image."""
        return f"digits, image {item}"

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Images by number."""
        return self.images[items]


def open_digits(request: SourceRequest) -> Digits:
    """Load the UCI test set of handwritten digits; values 0 to 16.

    Raises:
        Refusal: if something was given that it would ignore, or if scikit-learn is not installed.
    """
    request.refuse_image_size()
    request.refuse_regression()
    if request.folder is not None:
        raise Refusal(
            f"dataset digits is built in and would ignore {request.folder}: "
            "leave data empty, or choose the dataset that your folder holds."
        )
    table = _table()
    return Digits(
        images=table[:, :64].reshape(-1, 8, 8, 1).astype(np.uint8),
        labels=table[:, 64].astype(np.int64),
        classes=tuple("0123456789"),
        array=Array((8, 8, 1), "uint8"),
    )


def _table() -> npt.NDArray[np.float64]:
    """The 64 pixels and the digit of each image, as ``sklearn.datasets.load_digits`` has them.

    Its file is read without importing scikit-learn, which takes 2 s; where the file has moved, it is asked.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise Refusal("dataset digits comes with scikit-learn, which is not installed: pip install scikit-learn")
    file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])

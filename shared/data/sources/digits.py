"""Handwritten digits: 1,797 real images of 8x8, which come with scikit-learn. Needs no files and no network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shared.data.sources.stored_images import StoredImages
from shared.data.write.request import SourceRequest
from shared.data.write.spool import Spool
from shared.distributed import Refusal


def open_digits(request: SourceRequest) -> StoredImages:
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
    table, spool = _table(), Spool((8, 8, 1), "uint8")
    spool.append(table[:, :64].reshape(-1, 8, 8, 1))
    return StoredImages.of(request, spool, [("digits", 0)], table[:, 64].astype(np.int64), tuple("0123456789"))


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

"""CIFAR-10 and CIFAR-100 as their authors give them: Python's batches, read without executing anything."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.formats.file_format import read_budget
from shared.data.formats.safe_pickle import DamagedPickleError, ForeignObjectError, read_pickle
from shared.data.sources.stored_images import StoredImages
from shared.data.write.request import SourceRequest, list_names
from shared.data.write.spool import Spool
from shared.distributed import Refusal
from shared.storage import list_folder, read_bytes, retry_transient

_SHAPE = (32, 32, 3)
_ROW_BYTES = 3072
_PATTERNS = ("data_batch*", "test_batch*", "train", "test")
_META = {"batches.meta": "label_names", "meta": "fine_label_names"}
_INSIDE = ("cifar-10-batches-py", "cifar-100-python")


def open_cifar(request: SourceRequest) -> StoredImages:
    """Read all batches of a folder into a spool: the training batches by name, then the test batch.

    Raises:
        Refusal: if there is none, or if one is damaged or holds anything but numbers, texts and arrays of them.
    """
    request.refuse_regression()
    folder = _folder(request.needed_folder())
    there = list_folder(folder)
    batches = [path for pattern in _PATTERNS for path in there if fnmatchcase(path.name, pattern) and path.is_file()]
    if not batches:
        raise Refusal(
            f"{folder} holds no CIFAR batch (data_batch_1 to data_batch_5 and test_batch, or train and test), but "
            f"{list_names([path.name for path in there])}. Unpack the archive, and give its folder."
        )
    spool = Spool(_SHAPE, "uint8")
    files: list[tuple[str, int]] = []
    labels: list[npt.NDArray[np.int64]] = []
    for path in batches:
        try:
            content = _read(path)
            images = _images(content.get("data"))
            of_batch = _labels(content, len(images))
        except DamagedPickleError as error:
            place = path.relative_to(request.needed_folder())
            request.bad.report(str(place), f"is not a CIFAR batch that can be read: {error}")
        else:
            files.append((str(path), spool.rows))
            spool.append(images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            labels.append(of_batch)
    if not files:
        raise Refusal(f"{folder}: none of its {len(batches)} batches can be read; {request.bad.found[0].reason}.")
    return StoredImages.of(request, spool, files, *_classes(request, folder, np.concatenate(labels)))


def _folder(folder: Path) -> Path:
    return next((folder / name for name in _INSIDE if (folder / name).is_dir()), folder)


def _read(path: Path) -> dict[str, Any]:
    """Content of a batch, with its names as text.

    Raises:
        Refusal: if it holds a foreign object: that is no accident, and never left out in silence.
        DamagedPickleError: if it is something else, or damaged.
    """
    budget = read_budget()
    if retry_transient(path.stat).st_size > budget.pickle_bytes:  # the largest original one, CIFAR-100's, has 155 MB
        raise DamagedPickleError(
            f"it has more than {budget.pickle_bytes:,} bytes; {budget.how_to_raise('pickle_bytes')}"
        )
    try:
        content = read_pickle(read_bytes(path))
    except ForeignObjectError as error:
        raise Refusal(
            f"{path} holds {error}, which has no place in a CIFAR batch: it may be made to run code where it is read. "
            "Nothing was executed. Take the files from https://www.cs.toronto.edu/~kriz/cifar.html."
        ) from error
    if not isinstance(content, dict):
        raise DamagedPickleError(f"it holds a {type(content).__name__}, not a dictionary")
    return {_text(key): value for key, value in content.items()}


def _images(data: Any) -> npt.NDArray[np.uint8]:
    if isinstance(data, bytes | bytearray) and len(data) % _ROW_BYTES == 0:
        data = np.frombuffer(data, np.uint8).reshape(-1, _ROW_BYTES)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (len(data), _ROW_BYTES):
        what = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DamagedPickleError(f"its `data` is {what}, not bytes of shape (images, {_ROW_BYTES})")
    return data


def _labels(content: dict[str, Any], images: int) -> npt.NDArray[np.int64]:
    labels = content.get("labels", content.get("fine_labels"))
    values = labels.tolist() if isinstance(labels, np.ndarray) else labels
    if not isinstance(values, list) or not all(type(label) is int and 0 <= label < 1000 for label in values):
        raise DamagedPickleError("its `labels` are not whole numbers from 0 on")
    if len(values) != images:
        raise DamagedPickleError(f"it holds {images} images and {len(values)} labels")
    return np.array(values, np.int64)


def _classes(
    request: SourceRequest, folder: Path, values: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Labels and the names of the classes, from the file that lies beside the batches if there is one."""
    there = next((folder / name for name in _META if (folder / name).is_file()), None)
    if there is None:
        present, labels = np.unique(values, return_inverse=True)
        return labels.astype(np.int64), tuple(map(str, present.tolist()))
    try:
        found = _read(there).get(_META[there.name])
    except DamagedPickleError as error:
        raise Refusal(f"{there} cannot be read: {error}. Remove it, and the classes are called by number.") from error
    if (
        not isinstance(found, list)
        or len(found) <= values.max()
        or not all(isinstance(name, str | bytes) for name in found)
    ):
        raise Refusal(f"{there} does not name the {values.max() + 1} classes that {request.folder} has.")
    return values, tuple(map(_text, found))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

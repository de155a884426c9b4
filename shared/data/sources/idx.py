"""MNIST's format IDX, plain or gzipped: files of images, each with a file of labels beside it."""

from __future__ import annotations

import re
import struct
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from shared.data.formats.file_format import READ_ERRORS, WrongFileError, find_file_fault, open_bytes, read_budget
from shared.data.sources.stored_images import StoredImages
from shared.data.write.request import SourceRequest, list_names
from shared.data.write.spool import Spool
from shared.distributed import Refusal
from shared.storage import list_folder

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IMAGES = re.compile(r"(?P<before>.*)images(?P<middle>[-._])idx[34](?P<after>-ubyte)?(?P<gz>\.gz)?", re.IGNORECASE)
_STEP_BYTES = 2**22


def open_idx(request: SourceRequest) -> StoredImages:
    """Unpack all files of images of a folder into a spool, in the order of their names.

    Raises:
        Refusal: if there is none, if the labels are missing, or if a file is not what its header says.
    """
    request.refuse_regression()
    folder = request.needed_folder()
    pairs = _pairs(folder)
    spool: Spool | None = None
    files: list[tuple[str, int]] = []
    labels: list[npt.NDArray[Any]] = []
    for images, beside in pairs:
        rows = 0 if spool is None else spool.rows
        at = beside
        try:
            of_file = _read_labels(beside)
            at = images
            spool = _unpack(images, len(of_file), spool, request.max_megapixels * 10**6)
        except WrongFileError as error:
            if spool is not None:
                spool.cut(rows)
            request.bad.report(str(at.relative_to(folder)), str(error))
            continue
        files.append((str(images), rows))
        labels.append(of_file)
    if spool is None or not spool.rows:
        raise Refusal(f"{folder}: none of its {len(pairs)} files of images can be read; {request.bad.found[0].reason}.")
    present, of_all = np.unique(np.concatenate(labels), return_inverse=True)
    return StoredImages.of(request, spool, files, of_all.astype(np.int64), tuple(map(str, present.tolist())))


def _pairs(folder: Path) -> list[tuple[Path, Path]]:
    """Each file of images with its file of labels; a plain file wins over its gzipped copy."""
    found = {path.name: match for path in list_folder(folder) if (match := _IMAGES.fullmatch(path.name))}
    wanted = [name for name, match in found.items() if not (match["gz"] and name[:-3] in found)]
    if not wanted:
        raise Refusal(
            f"{folder} holds no IDX images (such as train-images-idx3-ubyte or train-images-idx3-ubyte.gz), but "
            f"{list_names([path.name for path in list_folder(folder)])}."
        )
    pairs = []
    for name in wanted:
        match = found[name]
        plain = f"{match['before']}labels{match['middle']}idx1{match['after'] or ''}"
        beside = next((folder / n for n in (plain, plain + ".gz") if (folder / n).is_file()), None)
        if beside is None:
            raise Refusal(f"{folder / name} has no labels beside it: {plain} or {plain}.gz is needed.")
        pairs.append((folder / name, beside))
    return pairs


def _read_labels(path: Path) -> npt.NDArray[Any]:
    with _open(path) as file:
        dtype, shape = _header(file, (1,))
        if dtype.kind == "f" or shape[0] > read_budget().labels:
            raise WrongFileError(
                f"claims {shape[0]:,} labels of {dtype}; up to {read_budget().labels:,} whole numbers can be read; "
                f"{read_budget().how_to_raise('labels')}"
            )
        content = _exactly(file, shape[0] * dtype.itemsize)
        _end(file, shape[0] * dtype.itemsize)
    return np.frombuffer(content, dtype).astype(np.int64)


def _unpack(path: Path, labels: int, spool: Spool | None, most_pixels: int) -> Spool:
    """Add the images of a file to a spool, which the first file makes."""
    with _open(path) as file:
        dtype, shape = _header(file, (3, 4))
        rows, row = shape[0], shape[1:] if len(shape) == 4 else (*shape[1:], 1)
        size = prod(row) * dtype.itemsize
        if rows != labels:
            raise WrongFileError(f"holds {rows:,} images, the file beside it {labels:,} labels")
        if prod(row[:2]) > most_pixels or not prod(row) or rows * size > read_budget().unpacked_bytes:
            raise WrongFileError(
                f"claims {rows:,} images of {' x '.join(map(str, row))}, which is none or too much: an image has up to "
                f"{most_pixels:,} pixels (max_megapixels), a file up to {read_budget().unpacked_bytes:,} bytes; "
                f"{read_budget().how_to_raise('unpacked_bytes')}"
            )
        spool = spool or Spool(row, dtype.name)
        if (row, dtype.name) != (spool.shape, spool.dtype.name):
            raise Refusal(
                f"{path} holds {dtype.name} {row}, the files before it {spool.dtype.name} {spool.shape}: images of one "
                "folder have one shape."
            )
        step = max(1, _STEP_BYTES // size)
        for start in range(0, rows, step):
            count = min(step, rows - start)
            spool.append(np.frombuffer(_exactly(file, count * size), dtype).reshape(count, *row))
        _end(file, rows * size)
    return spool


def _open(path: Path) -> IO[bytes]:
    if fault := find_file_fault(path):
        raise WrongFileError(fault)
    return open_bytes(path)


def _header(file: IO[bytes], axes: tuple[int, ...]) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape."""
    magic = _exactly(file, 4)
    if magic[:2] != b"\0\0" or magic[2] not in _TYPES or magic[3] not in axes:
        known = " or ".join(f"00 00 08 {count:02x}" for count in axes)
        raise WrongFileError(
            f"is not IDX with {' or '.join(map(str, axes))} axes: it starts with {magic.hex(' ')}, not {known}"
        )
    return np.dtype(_TYPES[magic[2]]), struct.unpack(f">{magic[3]}I", _exactly(file, 4 * magic[3]))


def _exactly(file: IO[bytes], count: int) -> bytes:
    content = _read(file, min(count, read_budget().unpacked_bytes))
    if len(content) < count:
        raise WrongFileError(f"is truncated: {count:,} more bytes are promised, {len(content):,} are there")
    return content


def _end(file: IO[bytes], expected: int) -> None:
    if _read(file, 1):
        raise WrongFileError(f"is longer than its header says: there is more after the {expected:,} bytes of its items")


def _read(file: IO[bytes], most: int) -> bytes:
    try:
        return file.read(most)
    except READ_ERRORS as error:
        raise WrongFileError(f"cannot be read: {error}") from error

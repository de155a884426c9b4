"""By how much the numbers of two files differ that are not equal to the bit: safetensors and npy, without a library."""

from __future__ import annotations

import ast
import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

_SAFETENSORS = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "I64": ("q", 8), "I32": ("i", 4), "U8": ("B", 1)}
_NPY = {"f8": ("d", 8), "f4": ("f", 4), "f2": ("e", 2), "i8": ("q", 8), "i4": ("i", 4), "u1": ("B", 1)}
_MOST_HEADER = 100 * 2**20  # what safetensors itself allows
_CHUNK = 2**20  # numbers that are compared at a time

_Array = tuple[str, str, int, int, int]  # name, struct's letter, bytes of a number, begin and end in the file


def largest_difference(one: Path, other: Path) -> str:
    """``at most 1.5e-07, in layer.weight``; why that cannot be told, or empty for a format that is not known."""
    readers = {".safetensors": _safetensors_arrays, ".npy": _npy_arrays}
    reader = readers.get(one.suffix)
    if reader is None:
        return ""
    try:
        arrays, others = list(reader(one)), list(reader(other))
        if [(name, letter, end - begin) for name, letter, _, begin, end in arrays] != [
            (name, letter, end - begin) for name, letter, _, begin, end in others
        ]:
            return "with other names, types or shapes"
        found = max(
            ((_difference(one, other, a, b), a[0]) for a, b in zip(arrays, others, strict=True)),
            default=(0.0, ""),
        )
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        SyntaxError,
        RecursionError,
        MemoryError,
        struct.error,
    ):
        return "not readable as what its name says"
    return f"at most {found[0]:.3g}" + (f", in {found[1]}" if found[1] else "")


def _difference(one: Path, other: Path, array: _Array, counterpart: _Array) -> float:
    _, letter, size, begin, end = array
    largest = 0.0
    with one.open("rb") as first, other.open("rb") as second:
        first.seek(begin)
        second.seek(counterpart[3])
        for start in range(0, (end - begin) // size, _CHUNK):
            count = min(_CHUNK, (end - begin) // size - start)
            a, b = first.read(count * size), second.read(count * size)
            if a != b:
                pairs = zip(struct.unpack(f"<{count}{letter}", a), struct.unpack(f"<{count}{letter}", b), strict=True)
                largest = max(largest, *(_gap(x, y) for x, y in pairs))
    return largest


def _gap(x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return 0.0 if math.isnan(x) and math.isnan(y) else math.inf
    return 0.0 if x == y else abs(x - y)


def _safetensors_arrays(path: Path) -> Iterator[_Array]:
    """The tensors of a file, those of a type that is not known as bytes."""
    with path.open("rb") as opened:
        length = struct.unpack("<Q", opened.read(8))[0]
        if length > _MOST_HEADER:
            raise ValueError("no header")
        header = json.loads(opened.read(length))
    for name, about in sorted(header.items()):
        if name != "__metadata__":
            letter, size = _SAFETENSORS.get(about["dtype"], ("B", 1))
            begin, end = about["data_offsets"]
            if not 0 <= begin <= end <= path.stat().st_size - 8 - length:
                raise ValueError("an array that the file does not hold")
            yield name, letter, size, 8 + length + begin, 8 + length + end


def _npy_arrays(path: Path) -> Iterator[_Array]:
    with path.open("rb") as opened:
        start = opened.read(8)
        if start[:6] != b"\x93NUMPY":
            raise ValueError("no npy file")
        width, letter = (2, "<H") if start[6] == 1 else (4, "<I")
        length = struct.unpack(letter, opened.read(width))[0]
        if length > _MOST_HEADER:
            raise ValueError("no header")
        about = ast.literal_eval(opened.read(length).decode("latin-1"))
    kind, size = _NPY.get(str(about["descr"]).lstrip("<|="), ("B", 1))
    begin = 8 + width + length
    yield "", kind, size, begin, path.stat().st_size

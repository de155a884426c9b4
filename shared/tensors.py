"""Tensors of torch or NumPy as safetensors, written front to back under their final name.

safetensors' own `save_file` writes another file and renames it, which a mounted blob store refuses.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from shared.storage import write_file

TYPE_NAMES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "complex64": "C64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "bool": "BOOL",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""Name of a type in torch and NumPy to that in safetensors; https://github.com/huggingface/safetensors#format."""
TYPE_BYTES: Final = {
    name: int(digits) // 8 for name in TYPE_NAMES.values() if (digits := re.sub(r"^\D+|_.*", "", name))
} | {"BOOL": 1, "C64": 8, "F8_E4M3": 1, "F8_E5M2": 1}
"""Type to the bytes of an element."""
LENGTH: Final = struct.Struct("<Q")
"""With which a file begins: the length of its header."""
_NAMES: Final = {name: ours for ours, name in TYPE_NAMES.items()}


def type_of(values: Any) -> str:
    """Name of the type of the elements of a tensor, or of what describes one by its `dtype`, as safetensors has it.

    Raises:
        ValueError: it has none for it.
    """
    name = str(values.dtype).removeprefix("torch.")
    if name not in TYPE_NAMES:
        raise ValueError(f"safetensors cannot hold elements of type {name}; it holds {', '.join(TYPE_NAMES)}.")
    return TYPE_NAMES[name]


def bytes_of(values: Any) -> memoryview:
    """Give the bytes of a tensor that is contiguous and on the CPU, without copying them."""
    if is_torch(values):
        import torch

        return memoryview(values.detach().reshape(-1).view(torch.uint8).numpy()).cast("B")
    import numpy as np

    return memoryview(values.reshape(-1).view(np.uint8)).cast("B")


def tensor_of(content: bytearray, type_name: str, shape: tuple[int, ...]) -> Any:
    """Make a tensor of bytes, without copying them: of torch if that is imported, else of NumPy."""
    if "torch" in sys.modules:
        import torch

        kind = getattr(torch, _NAMES[type_name])
        return torch.frombuffer(content, dtype=kind).reshape(shape) if content else torch.empty(shape, dtype=kind)
    import numpy as np

    return np.frombuffer(content, np.dtype(_NAMES[type_name])).reshape(shape)


def is_torch(values: Any) -> bool:
    """Whether it is a tensor of torch."""
    return "torch" in sys.modules and isinstance(values, sys.modules["torch"].Tensor)


def write_safetensors(path: Path, tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors of torch (on any device) or NumPy arrays as one file; its folder is there.

    One tensor at a time is brought to the CPU and made contiguous, if it is not.

    Raises:
        OSError: it cannot be written.
        ValueError: the elements are of a type that safetensors does not know.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header = encode_header([(name, type_of(tensors[name]), tuple(tensors[name].shape)) for name in names], metadata)

    def content() -> Iterator[memoryview | bytes]:
        yield header
        for name in names:
            yield bytes_of(_on_cpu(tensors[name]))

    write_file(path, content)


def encode_header(entries: list[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Make the header of a file of tensors: name, type and shape of each, in the order in which they follow it."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    start = 0
    for name, kind, shape in entries:
        if name in header:
            raise ValueError(f"There are two tensors of the name {name!r}.")
        end = start + math.prod(shape) * TYPE_BYTES[kind]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return LENGTH.pack(len(text)) + text


def _on_cpu(values: Any) -> Any:
    if is_torch(values):
        return values.detach().cpu().contiguous()
    import numpy as np

    return np.asarray(values, order="C")

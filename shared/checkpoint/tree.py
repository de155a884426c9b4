"""A framework's state as tensors and JSON: what `torch.save` would pickle, in a form that runs no code when it is read.

Numbers, text, None, lists and dictionaries with text keys stay readable; everything else is an object with one key
that begins with ``$``::

    {"$tensor": "optimizer.0.exp_avg"}   {"$tuple": [0.9, 0.999]}   {"$dict": [[0, ...], [1, ...]]}   {"$float": "inf"}
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from shared.distributed import Refusal

Json = Any
"""What `json.dumps(..., allow_nan=False)` takes."""


def pack_state(tree: Any, what: str) -> tuple[dict[str, torch.Tensor], Json]:
    """Take a state apart into tensors by name, none sharing memory with another, and JSON that refers to them.

    A tensor that stands in several places is kept once. Subclasses of dict and list become plain ones. The tree, which
    errors call `what`, is of numbers, text, bytes, None, lists, tuples, sets, dictionaries, NumPy scalars and arrays,
    and tensors.

    Raises:
        Refusal: naming the place that holds something else.
    """
    packer = _Packer(what)
    return packer.tensors, packer.pack(tree, "")


def unpack_state(tensors: Mapping[str, torch.Tensor], packed: Json) -> Any:
    """Put together what ``pack_state`` took apart; sets come back as sets, NumPy arrays as arrays.

    Raises:
        Refusal: if the JSON has an object that ``pack_state`` does not write.
    """
    if isinstance(packed, list):
        return [unpack_state(tensors, item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    kind = next(iter(packed), "")
    if not kind.startswith("$"):
        return {name: unpack_state(tensors, item) for name, item in packed.items()}
    value = packed[kind]
    match kind:
        case "$tensor":
            return tensors[value]
        case "$array":
            return tensors[value].numpy()
        case "$tuple":
            return tuple(unpack_state(tensors, item) for item in value)
        case "$set":
            return {unpack_state(tensors, item) for item in value}
        case "$frozenset":
            return frozenset(unpack_state(tensors, item) for item in value)
        case "$dict":
            return {unpack_state(tensors, key): unpack_state(tensors, item) for key, item in value}
        case "$float":
            return float(value)
        case "$bytes":
            return base64.b64decode(value)
        case _:
            raise Refusal(f"The checkpoint holds a {kind!r}, which this library does not write.")


class _Packer:
    """Collects the tensors of one state."""

    def __init__(self, what: str) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._what = what
        self._names: dict[tuple[object, ...], str] = {}  # where a tensor lies in memory, to its name
        self._storages: set[int] = set()

    def pack(self, tree: Any, place: str) -> Json:
        """Pack one node, which stands at `place`."""
        match tree:
            case None | bool() | str():
                return tree
            case int():
                return int(tree)  # an IntEnum becomes its number
            case float():
                return float(tree) if math.isfinite(tree) else {"$float": str(float(tree))}
            case torch.Tensor():
                return {"$tensor": self._keep(tree, place)}
            case np.ndarray() if tree.dtype.kind in "biuf":
                return {"$array": self._keep(torch.from_numpy(np.ascontiguousarray(tree)), place)}
            case np.generic():
                return self.pack(tree.item(), place)
            case bytes():
                return {"$bytes": base64.b64encode(tree).decode()}
            case Mapping():
                return self._pack_mapping(tree, place)
            case list() | tuple() | set() | frozenset():
                items = [self.pack(item, f"{place}.{number}") for number, item in enumerate(tree)]
                kinds = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}
                kind = next((name for name, one in kinds.items() if isinstance(tree, one)), None)
                return items if kind is None else {kind: items}
            case _:
                raise Refusal(
                    f"{self._what} cannot be kept without pickle: {place.lstrip('.') or 'it'} is a "
                    f"{type(tree).__module__}.{type(tree).__qualname__}. Checkpoints hold numbers, text, lists, "
                    "dictionaries and tensors."
                )

    def _pack_mapping(self, tree: Mapping[Any, Any], place: str) -> Json:
        if all(isinstance(key, str) and not key.startswith("$") for key in tree):
            return {str(key): self.pack(value, f"{place}.{key}") for key, value in tree.items()}
        pairs = [[self.pack(key, place), self.pack(value, f"{place}.{key}")] for key, value in tree.items()]
        return {"$dict": pairs}

    def _keep(self, tensor: torch.Tensor, place: str) -> str:
        tensor = tensor.detach()
        storage = tensor.untyped_storage().data_ptr()
        key = (storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and key in self._names:
            return self._names[key]
        name = place.lstrip(".") or "tensor"
        while name in self.tensors:  # keys 1 and "1" of one dictionary
            name += "_"
        shares = storage in self._storages and tensor.numel() > 0  # a view of a part: safetensors wants it apart
        self.tensors[name] = tensor.clone() if shares else tensor
        self._names[key] = name
        self._storages.add(storage)
        return name

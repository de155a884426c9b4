"""Pieces of tensors, which a rank writes and any rank reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A piece of a named tensor: its values (torch or NumPy), the shape of the whole, and where it belongs in it."""

    name: str
    values: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @classmethod
    def whole(cls, name: str, values: Any) -> ShardPart:
        """Make the piece that is the whole tensor."""
        return cls(name, values, tuple(values.shape), (0,) * len(values.shape))

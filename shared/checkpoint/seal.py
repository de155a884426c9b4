"""What a manifest says of a file, and the error of whoever finds something else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.storage import read_bytes


class DamageError(Exception):
    """A checkpoint is not what was written; the message says which part of it."""


@dataclass(frozen=True, slots=True)
class FileSeal:
    """Size of a file in bytes, and a sha256 that was taken while it was written."""

    size: int
    sha256: str

    @classmethod
    def of_bytes(cls, content: bytes) -> FileSeal:
        """Seal what is, or will be, a file."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    def to_json(self) -> dict[str, Any]:
        """As it stands in the manifest."""
        return {"bytes": self.size, "sha256": self.sha256}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> FileSeal:
        """Read what `to_json` gave."""
        return cls(int(said["bytes"]), str(said["sha256"]))


def read_sealed(path: Path, seal: FileSeal) -> bytes:
    """Read a small file.

    Raises:
        DamageError: it is missing, or not what was written.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    if len(content) != seal.size:
        raise DamageError(f"{path.name} has {len(content)} bytes instead of {seal.size}")
    if FileSeal.of_bytes(content) != seal:
        raise DamageError(f"the sha256 of {path.name} differs")
    return content

"""Reading a model's files where they may lie on a mounted blob store."""

from __future__ import annotations

from pathlib import Path


def read_stored(path: Path) -> bytes:
    """Read a file into memory, with further tries where that failed for a moment.

    What is mapped instead ends the process where the mount cannot give a page of it. A saved model, which has a copy of
    this folder under another name, reads without the library, and once.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    if not __name__.startswith("shared."):
        return path.read_bytes()
    from shared.storage import read_bytes

    return read_bytes(path)

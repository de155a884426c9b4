"""Reading a model's files where they may lie on a mounted blob store."""

from __future__ import annotations

from pathlib import Path


def read_stored(path: Path) -> bytes:
    """Read a file into memory, with further tries where that failed for a moment; without where a model stands alone.

    What is mapped instead ends the process where the mount cannot give a page of it.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    try:
        from shared.storage import read_bytes
    except ImportError:
        return path.read_bytes()
    return read_bytes(path)

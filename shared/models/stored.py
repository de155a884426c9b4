"""Read a model's files from mounted stores, and make errors: with this library, or in a saved model without it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

MOST_JSON_BYTES: Final = 2**24
"""Of a JSON file that says what lies beside it: far above real ones. Python takes 24 times as much to read it."""


def read_stored(path: Path, most: int | None = None) -> bytes:
    """Read a file into memory, with further tries where that failed for a moment.

    What is mapped instead ends the process where the mount cannot give a page of it. A saved model, which has a copy of
    this folder under another name, reads without the library, and once.

    Raises:
        OSError: it is not there, cannot be read, has more than `most` bytes, or is no file: a pipe would be waited for.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    if most is not None and path.exists() and path.stat().st_size > most:
        raise OSError(errno.EFBIG, f"it has {path.stat().st_size:,} bytes, more than {most:,}", str(path))
    if not __name__.startswith("shared."):
        return path.read_bytes()
    from shared.storage import read_bytes

    return read_bytes(path)


def make_refusal(message: str) -> Exception:
    """Make the error that a component prints without a traceback; a ValueError where a saved model stands alone."""
    try:
        from shared.distributed import Refusal
    except ImportError:
        return ValueError(message)
    return Refusal(message)

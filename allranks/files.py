"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file; who is killed meanwhile, or finds the disk full (OSError), leaves what was there before.

    It is written aside and renamed. A link stays one, and what is no file, such as ``/dev/stdout``, is written to.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise

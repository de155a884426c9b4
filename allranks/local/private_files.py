"""What the engine makes belongs to its owner alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_private_folder(folder: Path) -> None:
    """Make a folder that its owner alone may enter, whatever the umask says; one that is there keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def private_umask() -> Iterator[int]:
    """Within the block what this process makes belongs to its owner alone; gives the umask for what it starts."""
    before = os.umask(0o077)
    try:
        yield before
    finally:
        os.umask(before)

"""A disk of some megabytes, on which a test can have no room left: a tmpfs, which root mounts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a new, empty disk of so many bytes at `place`; it ends with all that is on it."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@cache
def can_mount_disk() -> bool:
    """Whether this process may mount one: it is root, and not in a container that forbids it."""
    if os.geteuid():
        return False
    with TemporaryDirectory() as place:
        try:
            with small_disk(Path(place), 2**20):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False

"""TMPDIR of the emulated nodes: short folders outside the run folder, removed when their attempt has ended.

A Unix socket's path has at most 107 bytes (unix(7)), and Python's multiprocessing adds 32 of them to TMPDIR. With a
TMPDIR in the run folder, DataLoader workers fail in nearly every project folder.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path

from allranks.local.file_locks import try_lock

_PREFIX, _LOCK = "allranks-tmp-", "lock"
_NAME = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
_LONGEST_BASE = 40
"""Characters of the folder above: the rest of 107 bytes are ours (about 30) and those of the socket in it."""


class TemporaryRoot:
    """The folder of one run below TMPDIR of the user, or /tmp; only its owner may enter it.

    The engine holds a lock in it. A folder whose lock is free was left by an engine that was killed, and the next
    engine removes it.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock = -1
        self._numbers = count(1)

    def open(self) -> None:
        """Make the folder, and remove those that killed engines have left beside it."""
        base = _base()
        for left in base.glob(f"{_PREFIX}*"):
            _remove_abandoned(left)
        while self._path is None:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            lock = try_lock(path / _LOCK)
            if lock is not None and (path / _LOCK).exists():  # not removed by another engine before it was locked
                self._path, self._lock = path, lock

    def new_attempt(self, nodes: int) -> Path:
        """Make the folder of an attempt, with one folder for each node, named by its number."""
        if self._path is None:
            self.open()
        assert self._path is not None  # noqa: S101 open has made it
        attempt = self._path / str(next(self._numbers))
        for node in range(nodes):
            (attempt / str(node)).mkdir(parents=True)
        return attempt

    def remove(self) -> None:
        """Remove the folder with all that is left in it; also called by the guard, after the engine was killed."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder; nothing happens if there is none."""
        self.remove()
        if self._lock >= 0:
            os.close(self._lock)
        self._path, self._lock = None, -1


def _base() -> Path:
    """The folder above: the user's TMPDIR or the system's, whichever can be written and is short enough."""
    usual = tempfile.gettempdir()
    for folder in (usual, "/tmp", "/var/tmp"):  # noqa: S108 only folders of their own are made there
        if len(os.fsencode(folder)) <= _LONGEST_BASE and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder)
    return Path(usual)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder of this user whose engine is gone. Other folders, also with such a name, stay."""
    with suppress(OSError):
        is_own = _NAME.fullmatch(folder.name) and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
        if is_own and (folder / _LOCK).is_file() and (lock := try_lock(folder / _LOCK)) is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)

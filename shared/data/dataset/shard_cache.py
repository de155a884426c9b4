"""Files of shards on the disk of the node, for all of its ranks: fetched once, known by their sha256, bounded in size.

Only files that were written here are ever removed. Locks are the kernel's, so that a process that is killed holds none;
what it left half-written has no final name. A file that was touched after it was committed is fetched again: it bears a
time of change that only a commit gives. When it was last used is its time of access, which is set by hand.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from shared.data.dataset.npy_files import is_local
from shared.distributed import Refusal
from shared.storage import retry_transient

_COMMITTED_NS = 10**18
"""Time of change of a whole file: 2001-09-09T01:46:40Z."""

_PIECE_BYTES = 4 * 2**20
_LEFTOVER_SECONDS = 3600.0


class CacheWriteError(Exception):
    """The cache's disk takes no more."""


class ShardCache:
    """A folder of at most `capacity` bytes, shared by the processes of a node."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder, self._capacity = folder, capacity
        self._told = False

    def fetch(self, source: Path, sha256: str) -> Path | None:
        """Give the path of a whole copy of a file on this node's disk; None: the disk takes none, read the source.

        One process of the node fetches, the others wait for it.

        Raises:
            Refusal: if the source is not the file that the sha256 is of.
            OSError: if the source cannot be read.
        """
        copy = self._folder / f"{sha256}.npy"
        if self._is_used(copy):
            return copy
        try:
            with self._locked(f"fetch-{sha256[:2]}"):
                return copy if self._is_used(copy) or self._fetch(source, copy, sha256) else None
        except CacheWriteError as error:
            if not self._told:
                self._told = True
                print(
                    f"note: {self._folder} takes no copies ({error}): shards are read where they lie.", file=sys.stderr
                )
            return None

    def _is_used(self, copy: Path) -> bool:
        """Whether there is a whole copy; it is then the one that was used last."""
        try:
            if copy.stat().st_mtime_ns != _COMMITTED_NS:
                return False
            os.utime(copy, ns=(time.time_ns(), _COMMITTED_NS))
        except OSError:
            return False
        return True

    def _fetch(self, source: Path, copy: Path, sha256: str) -> bool:
        """Copy and commit; False if there is no room for a file of this size."""
        size, part = retry_transient(source.stat).st_size, copy.with_suffix(".part")
        with self._locked("room"):
            if not self._make_room(size, part):
                return False
        try:
            if _copy_hashed(source, part) != sha256 and _copy_hashed(source, part) != sha256:
                raise Refusal(
                    f"{source} is not the file that was prepared: its sha256 differs. Prepare the data again."
                )
            os.utime(part, ns=(time.time_ns(), _COMMITTED_NS))
            part.replace(copy)
        finally:
            part.unlink(missing_ok=True)
        return True

    def _make_room(self, size: int, part: Path) -> bool:
        """Remove what was used longest ago, and what killed processes left, until a part of this size fits; make it.

        On a disk that others fill up, the cache is as large as what is free and what it has.
        """
        part.unlink(missing_ok=True)
        now, files = time.time(), []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # others commit and give up theirs meanwhile
                    if entry.name.endswith((".npy", ".part")):
                        files.append((entry.stat(), entry.path))
        total = sum(found.st_size for found, _ in files)
        most = min(self._capacity, total + shutil.disk_usage(self._folder).free)
        if size > most:
            return False
        for found, path in sorted(files, key=lambda one: one[0].st_atime_ns):
            is_part = path.endswith(".part")
            if now - found.st_mtime > _LEFTOVER_SECONDS if is_part else total + size > most:
                Path(path).unlink(missing_ok=True)  # who has mapped it keeps it until he is done
                total -= found.st_size
        try:
            part.touch(mode=0o600)
            os.truncate(part, size)  # so that others count it
        except OSError as error:
            raise CacheWriteError(error.strerror) from error
        return True

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Let one thread of one process of the node be here."""
        try:
            handle = os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise CacheWriteError(error.strerror) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def open_cache(data: Path, cache_gb: float, named: str | None) -> ShardCache | None:
    """The cache of this node for the shards in a folder, `cache_gb` GB large; None: nothing is to be copied.

    It is the folder that is `named`. Without one it is one in TMPDIR, and nothing is copied that lies on the disk of
    that already.
    """
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"allranks-cache-{os.getuid()}"
    if cache_gb <= 0:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat() if named is None else folder.stat()
    except OSError as error:
        print(f"note: there is no cache of shards, since {folder} cannot be used: {error.strerror}.", file=sys.stderr)
        return None
    if found.st_uid != os.getuid():  # TMPDIR is everybody's
        print(f"note: there is no cache of shards, since {folder} is another user's.", file=sys.stderr)
        return None
    return None if named is None and is_local(data) else ShardCache(folder, int(cache_gb * 10**9))


def _copy_hashed(source: Path, part: Path) -> str:
    """Copy a file to the disk, front to back, from storage that may fail for a moment; its sha256."""
    digest, file = hashlib.sha256(), retry_transient(lambda: source.open("rb", buffering=0))
    try:
        with _opened(part) as copy:
            while piece := retry_transient(lambda: file.read(_PIECE_BYTES)):
                digest.update(piece)
                _write(copy, piece)
            _write(copy, b"", last=True)
    finally:
        with suppress(OSError):  # what a mount says to that does no harm to what has been read
            file.close()
    return digest.hexdigest()


def _opened(part: Path) -> IO[bytes]:
    try:
        return part.open("r+b", buffering=0)
    except OSError as error:
        raise CacheWriteError(error.strerror) from error


def _write(copy: IO[bytes], piece: bytes, *, last: bool = False) -> None:
    try:
        view = memoryview(piece)
        while view:
            view = view[copy.write(view) :]
        if last:
            copy.truncate()
            os.fsync(copy.fileno())
    except OSError as error:
        raise CacheWriteError(error.strerror) from error

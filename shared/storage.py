"""Writing and reading where storage may be a mounted blob store: no rename, no append, and a second try.

Azure ML's outputs are such mounts. Renaming is refused there or copies every byte, appending may fail, and single
operations fail for a moment: those are tried again, up to five times within nine seconds. A file counts when what names
it (a manifest, an index) has been written after it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

_Value = TypeVar("_Value")
Bytes: TypeAlias = bytes | bytearray | memoryview

_TRANSIENT: Final = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "EAGAIN", "EBUSY", "EINTR", "ETIMEDOUT", "ESTALE", "EREMOTEIO", "ECOMM", "EPROTO"),
        *("ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "ENETDOWN", "ENETRESET", "ENETUNREACH", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
)
"""What a mount says when its store was away or slow; a full disk or a missing right does not pass by itself."""
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
"""What a mount says that cannot wait until something is in storage."""
_PAUSES: Final = (0.1, 0.4, 1.6, 6.4)
"""Seconds before each further try."""
_PIECE: Final = 2**24
"""Bytes that are handed to the system at once."""


def retry_transient(action: Callable[[], _Value]) -> _Value:
    """Do what may be done twice, again where it failed for a moment.

    Raises:
        OSError: at once where a further try is of no use, else that of the fifth.
    """
    for pause in _PAUSES:
        try:
            return action()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        time.sleep(pause)
    return action()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, if they are not there."""
    retry_transient(lambda: path.mkdir(parents=True, exist_ok=True))


def list_folder(path: Path) -> list[Path]:
    """Give what is in a folder, by name; nothing if it is not there. A mount may not show yet what is new."""
    try:
        return retry_transient(lambda: sorted(path.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    retry_transient(lambda: path.unlink(missing_ok=True))


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, if it is there; what a listing did not show yet, when it does.

    Raises:
        OSError: something cannot be removed.
    """
    for pause in (*_PAUSES, None):
        for inside in list_folder(path):
            if inside.is_dir() and not inside.is_symlink():
                remove_folder(inside)
            else:
                remove_file(inside)
        try:
            retry_transient(path.rmdir)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or pause is None:
                raise
            time.sleep(pause)
        else:
            return


def write_file(path: Path, content: Callable[[], Iterable[Bytes]]) -> None:
    """Write a file front to back and wait until it is in storage; its folder is there.

    `content` gives its bytes, each time anew: a failed end (fsync, close) may have lost any of them, so that everything
    is written again.

    Raises:
        OSError: it cannot be written.
    """
    retry_transient(lambda: _write_once(path, content()))


def write_bytes(path: Path, content: Bytes) -> None:
    """Write a small file, as `write_file` does."""
    write_file(path, lambda: (content,))


def write_text(path: Path, content: str) -> None:
    """Write a small file in UTF-8, as `write_file` does."""
    write_bytes(path, content.encode("utf-8"))


def append_text(path: Path, content: str) -> None:
    """Add to the end of a small file in UTF-8; where that cannot be done, write it again, longer.

    Raises:
        OSError: neither can be done.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(content)
    except FileNotFoundError:
        raise
    except OSError:
        before = read_bytes(path) if path.exists() else b""
        before = before[: before.rfind(b"\n") + 1]  # half a line may have been written
        write_bytes(path, before + content.encode())


def copy_file(source: Path, target: Path) -> None:
    """Copy a file; its folder is there."""

    def content() -> Iterator[bytearray]:
        with closing(RandomReads(source)) as reads:
            for start in range(0, reads.size, _PIECE):
                yield reads.read(start, min(_PIECE, reads.size - start))

    write_file(target, content)


def copy_folder(source: Path, target: Path, left_out: Callable[[str, list[str]], set[str]]) -> None:
    """Copy a folder without those that `left_out` names, which `shutil.ignore_patterns` makes."""
    make_folder(target)
    names = retry_transient(lambda: sorted(path.name for path in source.iterdir()))
    for name in (name for name in names if name not in left_out(str(source), names)):
        if (source / name).is_dir():
            copy_folder(source / name, target / name, left_out)
        else:
            copy_file(source / name, target / name)


class FrontToBack:
    """A file that is open for writing, front to back; what fails for a moment is tried again at its place.

    Attributes:
        path: where it lies.
        size: bytes written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self._descriptor = retry_transient(lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666))

    def write(self, content: Bytes) -> None:
        """Write what comes next."""
        rest = memoryview(content)
        rest = rest.cast("B") if rest.nbytes else memoryview(b"")
        while rest:
            done = retry_transient(partial(os.pwrite, self._descriptor, rest[:_PIECE], self.size))
            self.size += done
            rest = rest[done:]

    def finish(self) -> None:
        """Hand it over to its storage, and close it; whether it arrived whole shows its hash."""
        # To close a copy makes a mount send the file, and can be done again.
        retry_transient(lambda: os.close(os.dup(self._descriptor)))
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.close(descriptor)
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise

    def finish_in_storage(self) -> None:
        """Wait until it is in storage, and close it.

        Raises:
            OSError: what was written may be lost, whatever another try says.
        """
        descriptor, self._descriptor = self._descriptor, -1
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                with suppress(OSError):
                    os.close(descriptor)
                raise
        os.close(descriptor)

    def finish_streamed(self) -> None:
        """Wait until it is in storage, and close it: of what cannot be written again, since nobody has all of it.

        Raises:
            OSError: it is not there, even after several tries, or is shorter than what was written.
        """
        retry_transient(self._sync)
        if retry_transient(lambda: os.fstat(self._descriptor)).st_size != self.size:
            raise OSError(errno.EIO, "the storage has lost a part of it", str(self.path))
        self.finish()

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise

    def abandon(self) -> None:
        """Close it, if that has not been done: nobody will name it."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1


def read_bytes(path: Path) -> bytes:
    """Read a small file.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    return retry_transient(path.read_bytes)


class RandomReads:
    """A file that is open for reading; what fails for a moment is tried again.

    Memory-mapped, a read that fails would end the process with SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = retry_transient(lambda: os.open(path, os.O_RDONLY))
        self.size = retry_transient(lambda: os.fstat(self._descriptor)).st_size

    def read(self, start: int, size: int) -> bytearray:
        """Read so many bytes from a place; fewer at the end of the file."""
        content = bytearray(size)
        rest, at = memoryview(content), start
        while rest:
            done = retry_transient(partial(os.preadv, self._descriptor, [rest[:_PIECE]], at))
            if done == 0:
                return content[: at - start]
            rest, at = rest[done:], at + done
        return content

    def close(self) -> None:
        """Close it; what a mount says to that does no harm to what has been read."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are in storage, where it can be waited for."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_once(path: Path, content: Iterable[Bytes]) -> None:
    file = FrontToBack(path)
    try:
        for piece in content:
            file.write(piece)
        file.finish_in_storage()
    finally:
        file.abandon()

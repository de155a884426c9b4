"""Writing and reading where storage may be a mounted blob store: no rename, no append, and a second try.

Azure ML's outputs are such mounts. Renaming is refused there or copies every byte, appending may fail, and single
operations fail for a moment: those are tried again, up to five times within nine seconds. A file counts when what names
it (a manifest, an index) has been written after it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

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
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
"""What a mount says that cannot wait until something is in storage."""
_PAUSES: Final = (0.1, 0.4, 1.6, 6.4)
"""Seconds before each further try."""
_PIECE: Final = 2**24
"""Bytes that are handed to the system at once."""
_BUFFER: Final = 2**16
"""Bytes that a file object reads at once, where it is asked for fewer."""

JSON_BYTES: Final = 2**24
"""Of a JSON file that says what lies beside it: far above real ones. Python takes 24 times as much to read it."""
TOKENIZER_BYTES: Final = 2**27
"""Of a tokenizer's file; one of 260,000 words has 33 million."""

_note_move: Callable[[], None] = lambda: None  # noqa: E731


def retry_transient(action: Callable[[], _Value]) -> _Value:
    """Do what may be done twice, again where it failed for a moment.

    Raises:
        OSError: at once where a further try is of no use, else that of the fifth.
    """
    for pause in _PAUSES:
        try:
            done = action()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        else:
            _note_move()
            return done
        time.sleep(pause)
    return action()


def is_full(error: OSError) -> bool:
    """Say whether a storage has no room: its disk is full, or the share of it that may be used."""
    return error.errno in _FULL


def may_pass(error: OSError) -> bool:
    """Say whether the same may succeed later: the storage is full, takes no file of this size, or is away or ill."""
    return error.errno in _FULL or error.errno in _TRANSIENT or error.errno == errno.EFBIG


def report_moves(note: Callable[[], None]) -> None:
    """Have `note` called for each piece that is read or written, by any thread: files of minutes are no hang."""
    global _note_move  # noqa: PLW0603  (a process is one rank)
    _note_move = note


def make_folder(path: Path) -> None:
    """Make a folder and those above it, if they are not there."""
    retry_transient(lambda: path.mkdir(parents=True, exist_ok=True))


def list_folder(path: Path) -> list[Path]:
    """Give what is in a folder, by name; nothing if it is not there. A mount may not show yet what is new."""
    try:
        return retry_transient(lambda: sorted(path.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_entries(path: Path) -> list[os.DirEntry[str]]:
    """Give what is in a folder, in any order, with what the system says of it for nothing.

    Raises:
        OSError: it is not there, or cannot be listed.
    """

    def entries() -> list[os.DirEntry[str]]:
        with os.scandir(path) as found:
            return list(found)

    return retry_transient(entries)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    retry_transient(lambda: path.unlink(missing_ok=True))


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, if it is there; what a listing did not show yet, when it does.

    Of a link the target stays.

    Raises:
        OSError: something cannot be removed.
    """
    if path.is_symlink():
        remove_file(path)
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
        OSError: neither can be done. On a disk that is full the file stays as it was.
    """
    size = 0
    try:
        with path.open("a", encoding="utf-8") as file:
            size = file.tell()
            file.write(content)
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_full(error):  # to write it again would begin with losing what is there
            with suppress(OSError):
                os.truncate(path, size)
            raise
        before = read_bytes(path) if path.exists() else b""
        before = before[: before.rfind(b"\n") + 1]  # half a line may have been written
        write_bytes(path, before + content.encode())


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
        self._sync()
        descriptor, self._descriptor = self._descriptor, -1
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


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Read a small file.

    Raises:
        OSError: it is not there, cannot be read, or has more than `most` bytes; with EFBIG then.
    """
    with closing(RandomReads(path)) as file:
        if most is not None and file.size > most:
            raise OSError(errno.EFBIG, f"it has {file.size:,} bytes, more than {most:,}", str(path))
        return bytes(file.read(0, file.size))


def open_file(path: Path) -> io.BufferedReader:
    """Open a file for those who want a file object to read from; what fails for a moment is tried again at its place.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    return io.BufferedReader(_ReadsInOrder(RandomReads(path)), _BUFFER)


class RandomReads:
    """A file that is open for reading; what fails for a moment is tried again.

    Memory-mapped, a read that fails would end the process with SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = retry_transient(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # a pipe would block
        about = retry_transient(lambda: os.fstat(self._descriptor))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        self.size = about.st_size

    def read(self, start: int, size: int) -> bytearray:
        """Read so many bytes from a place; fewer at the end of the file."""
        content = bytearray(size)
        done = self.read_into(memoryview(content), start)
        return content if done == size else content[:done]

    def read_into(self, rest: memoryview, start: int) -> int:
        """Fill `rest` with bytes from a place on; gives how many, which are fewer at the end of the file."""
        at = start
        while rest:
            done = retry_transient(partial(os.preadv, self._descriptor, [rest[:_PIECE]], at))
            if done == 0:
                break
            rest, at = rest[done:], at + done
        return at - start

    def close(self) -> None:
        """Close it; what a mount says to that does no harm to what has been read."""
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class _ReadsInOrder(io.RawIOBase):
    """`RandomReads` as a file object."""

    def __init__(self, reads: RandomReads) -> None:
        self._at = 0
        self._reads = reads

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        done = self._reads.read_into(memoryview(buffer).cast("B"), self._at)
        self._at += done
        return done

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._reads.size}[whence]
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._reads.close()
        super().close()


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

"""A file system that is as awkward as a mounted blob store, made with FUSE: every writer meets it, in whatever language.

It speaks the kernel's own protocol (include/uapi/linux/fuse.h), so that nothing has to be installed; root mounts it.
The files lie in a folder beside it. As a program, it serves a mount until it is unmounted::

    python tests/blob_mount.py FOLDER MOUNT '{"rename": "refuse", "errors": 0.01}'
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN = struct.Struct("<IIQQIIIHH")  # length, operation, unique, node, uid, gid, pid, extensions
_OUT = struct.Struct("<IiQ")  # length, error, unique
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_MAX_WRITE = 2**17
_DETACH = 2
_ROOT = 1


@dataclass(frozen=True)
class BlobFaults:
    """What is wrong with a mount.

    Attributes:
        rename: of files and folders: refused, done by copying and removing, or as on a disk.
        append: whether a file may be opened to add to its end.
        lag: seconds until a folder's listing shows a name that is there.
        errors: share of the operations that fail once, and succeed when they are tried again.
        first: whether each kind of operation fails the first time on each file and folder, and never again.
        direct: whether each read goes to the store, past the system's cache, which hides errors of reading.
        listings: whether each listing of a folder fails once, and succeeds when it is tried again.
        close: seconds that closing a file that was written takes.
        seed: of the errors.
    """

    rename: Literal["refuse", "copy", "move"] = "move"
    append: bool = True
    lag: float = 0.0
    errors: float = 0.0
    first: bool = False
    direct: bool = False
    listings: bool = False
    close: float = 0.0
    seed: int = 0


_CAP_SYS_ADMIN = 21  # <linux/capability.h>, which root lacks in most containers
WORST = BlobFaults(rename="refuse", append=False, lag=1.0, errors=0.01, close=0.02)


def can_mount() -> bool:
    """Whether this process may mount what it serves itself."""
    with open("/proc/self/status") as status:  # noqa: PTH123
        rights = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    if not rights >> _CAP_SYS_ADMIN & 1 or os.geteuid() or not os.path.exists("/dev/fuse"):  # noqa: PTH110
        return False
    with suppress(OSError):
        os.close(os.open("/dev/fuse", os.O_RDWR))
        return True
    return False


@contextmanager
def blob_mount(place: Path, faults: BlobFaults = WORST) -> Iterator[Path]:
    """Mount a new, empty folder in `place`; it ends, with all that is open in it, at the end."""
    from tests.waiting import wait_for  # the server itself is a script in this folder

    behind, mount = place / "behind", place / "mount"
    for folder in (behind, mount):
        folder.mkdir(parents=True, exist_ok=True)

    command = [sys.executable, __file__, str(behind), str(mount), json.dumps(asdict(faults))]
    with subprocess.Popen(command) as server:
        try:
            wait_for(lambda: os.path.ismount(mount), [server])
            yield mount
        finally:
            _LIBC.umount2(os.fsencode(mount), _DETACH)
            server.kill()


class _FaultError(OSError):
    pass


def _fail(number: int) -> OSError:
    return _FaultError(number, os.strerror(number))


class BlobServer:
    """Answers the kernel's questions about one mount, one after the other."""

    def __init__(self, behind: Path, faults: BlobFaults) -> None:
        self._faults, self._random = faults, random.Random(faults.seed)
        self._paths = {_ROOT: str(behind)}
        self._nodes = {str(behind): _ROOT}
        self._handles: dict[int, tuple[int, bool]] = {}  # descriptor, whether it was written to
        self._made: dict[str, float] = {}
        self._failed: set[tuple[int, int]] = set()
        self._tried: set[tuple[int, int]] = set()
        self._listed: dict[int, list[str]] = {}
        self._answers: Mapping[int, Callable[[int, bytes], bytes | None]] = {
            1: self._lookup, 3: self._getattr, 4: self._setattr, 9: self._mkdir, 10: self._unlink, 11: self._rmdir,
            12: self._rename, 14: self._open, 15: self._read, 16: self._write, 17: self._statfs, 18: self._release,
            20: self._fsync, 25: self._flush, 26: self._init, 27: self._opendir, 28: self._readdir,
            29: self._nothing, 30: self._nothing, 34: self._nothing, 35: self._create, 45: self._rename2,
        }  # fmt: skip

    def serve(self, device: int) -> None:
        """Answer until the mount has gone."""
        while True:
            try:
                message = os.read(device, _MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                return
            _, operation, unique, node, *_ = _IN.unpack_from(message)
            if operation in (2, 36, 42):  # forget, interrupt, forget several: nobody waits for an answer
                continue
            error_number, answer = 0, b""
            try:
                self._disturb(operation, node)
                known = self._answers.get(operation)
                if known is None:
                    raise _fail(errno.ENOSYS)
                answer = known(node, message[_IN.size :]) or b""
            except OSError as error:
                error_number = error.errno or errno.EIO
            with suppress(OSError):  # who asked may be gone
                os.write(device, _OUT.pack(_OUT.size + len(answer), -error_number, unique) + answer)

    def _disturb(self, operation: int, node: int) -> None:
        """Fail now and then, and never twice in a row at the same place."""
        if operation in (9, 10, 14, 15, 16, 20, 25, 28, 35) and (self._faults.errors or self._faults.first):
            self._fail_once((operation, node), self._faults.errors)

    def _fail_once(self, place: tuple[int, int], share: float = 1.0) -> None:
        if self._faults.first and place not in self._tried:
            self._tried.add(place)
            raise _fail(errno.EIO)
        if place in self._failed:
            self._failed.discard(place)
        elif self._random.random() < share:
            self._failed.add(place)
            raise _fail(errno.EIO)

    # ---- names

    def _child(self, node: int, name: bytes) -> str:
        return os.path.join(self._paths[node], os.fsdecode(name.partition(b"\0")[0]))  # noqa: PTH118

    def _entry(self, path: str) -> bytes:
        attributes = _attributes(path, self._node_of(path))
        return struct.pack("<QQQQII", self._nodes[path], 0, 0, 0, 0, 0) + attributes

    def _node_of(self, path: str) -> int:
        node = self._nodes.setdefault(path, len(self._paths) + 1)
        self._paths[node] = path
        return node

    def _lookup(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body)
        os.lstat(path)
        return self._entry(path)

    def _getattr(self, node: int, body: bytes) -> bytes:
        del body
        return struct.pack("<QII", 0, 0, 0) + _attributes(self._paths[node], node)

    def _setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & 8:
            os.truncate(self._paths[node], size)
        return self._getattr(node, body)

    def _mkdir(self, node: int, body: bytes) -> bytes:
        path = self._child(node, body[8:])
        os.mkdir(path)  # noqa: PTH102
        self._made[path] = time.monotonic()
        return self._entry(path)

    def _unlink(self, node: int, body: bytes) -> None:
        path = self._child(node, body)
        os.unlink(path)  # noqa: PTH108
        self._forget(path)

    def _rmdir(self, node: int, body: bytes) -> None:
        path = self._child(node, body)
        os.rmdir(path)  # noqa: PTH106
        self._forget(path)

    def _forget(self, path: str) -> None:
        self._nodes.pop(path, None)  # the number keeps its path: others may have it open

    def _rename(self, node: int, body: bytes) -> None:
        self._move(node, body, 8)

    def _rename2(self, node: int, body: bytes) -> None:
        self._move(node, body, 16)

    def _move(self, node: int, body: bytes, begin: int) -> None:
        (parent,) = struct.unpack_from("<Q", body)
        before, after, *_ = body[begin:].split(b"\0")
        old, new = self._child(node, before), self._child(parent, after)
        if self._faults.rename == "refuse":
            raise _fail(errno.EPERM)
        if self._faults.rename == "move":
            os.rename(old, new)  # noqa: PTH104
        elif os.path.isdir(old):  # noqa: PTH112
            shutil.copytree(old, new, dirs_exist_ok=True)
            shutil.rmtree(old)
        else:
            shutil.copyfile(old, new)
            os.unlink(old)  # noqa: PTH108
        for path in [path for path in self._nodes if path == old or path.startswith(f"{old}/")]:
            moved = self._nodes.pop(path)
            self._paths[moved] = new + path[len(old) :]
            self._nodes[self._paths[moved]] = moved

    # ---- content

    def _open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        return self._opened(self._paths[node], flags)

    def _opened(self, path: str, flags: int) -> bytes:
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if flags & os.O_APPEND and not self._faults.append:
            raise _fail(errno.EOPNOTSUPP)
        descriptor = os.open(path, (flags & ~(os.O_APPEND | os.O_EXCL | os.O_NOFOLLOW)) | os.O_CLOEXEC, 0o644)
        self._handles[descriptor] = (descriptor, writes)
        return struct.pack("<QII", descriptor, int(self._faults.direct), 0)  # FOPEN_DIRECT_IO

    def _create(self, node: int, body: bytes) -> bytes:
        flags, _, _, _ = struct.unpack_from("<IIII", body)
        path = self._child(node, body[16:])
        opened = self._opened(path, flags | os.O_CREAT)
        self._made.setdefault(path, time.monotonic())
        return self._entry(path) + opened

    def _read(self, node: int, body: bytes) -> bytes:
        del node
        handle, offset, size = struct.unpack_from("<QQI", body)
        return os.pread(handle, size, offset)

    def _write(self, node: int, body: bytes) -> bytes:
        del node
        handle, offset, size = struct.unpack_from("<QQI", body)
        return struct.pack("<II", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def _flush(self, node: int, body: bytes) -> None:
        del node
        (handle,) = struct.unpack_from("<Q", body)
        if self._handles.get(handle, (0, False))[1]:
            time.sleep(self._faults.close)

    def _fsync(self, node: int, body: bytes) -> None:
        """It is a process that dies in the tests, not the machine."""

    def _release(self, node: int, body: bytes) -> None:
        del node
        (handle,) = struct.unpack_from("<Q", body)
        if self._handles.pop(handle, None):
            os.close(handle)

    # ---- folders

    def _opendir(self, node: int, body: bytes) -> bytes:
        del node, body
        return struct.pack("<QII", 0, 0, 0)

    def _readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        folder, now = self._paths[node], time.monotonic()
        if self._faults.listings and offset == 0:
            self._fail_once((-28, node))  # beside the errors of `_disturb`, or none would succeed
        names = sorted(os.listdir(folder)) if offset == 0 else self._listed[node]  # noqa: PTH208
        if offset == 0:
            paths = {name: os.path.join(folder, name) for name in names}  # noqa: PTH118
            names = [name for name in names if now - self._made.get(paths[name], -1e9) >= self._faults.lag]
            self._listed[node] = names
        content = b""
        for number, name in enumerate(names[offset:], start=offset + 1):
            encoded = os.fsencode(name)
            with suppress(FileNotFoundError):
                kind = stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) >> 12  # noqa: PTH118
                record = struct.pack("<QQII", number, number, len(encoded), kind) + encoded
                record += b"\0" * (-len(record) % 8)
                if len(content) + len(record) > size:
                    break
                content += record
        return content

    # ---- the mount

    def _init(self, node: int, body: bytes) -> bytes:
        del node
        _, _, readahead, _ = struct.unpack_from("<IIII", body)
        big_writes = 1 << 5
        return struct.pack("<IIIIHHII", 7, 31, readahead, big_writes, 12, 10, _MAX_WRITE, 1) + struct.pack(
            "<HHI28x", 32, 0, 0
        )

    def _statfs(self, node: int, body: bytes) -> bytes:
        del node, body
        found = os.statvfs(self._paths[_ROOT])
        sizes = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<QQQQQIIII24x", *sizes, found.f_bsize, 255, found.f_frsize, 0)

    def _nothing(self, node: int, body: bytes) -> None:
        """It is all right."""


def _attributes(path: str, node: int) -> bytes:
    found = os.lstat(path)
    times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
    return _ATTR.pack(
        node, found.st_size, found.st_blocks, *(at // 10**9 for at in times), *(at % 10**9 for at in times),
        found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0,
    )  # fmt: skip


def _serve(behind: Path, mount: Path, faults: BlobFaults) -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if _LIBC.mount(b"blob", os.fsencode(mount), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    BlobServer(behind, faults).serve(device)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]), BlobFaults(**json.loads(sys.argv[3])))

"""Where the keeper of this user listens: a socket in a folder that nobody else may enter."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from pathlib import Path

_MOST_CHARACTERS = 107  # sockaddr_un, unix(7)
_ENDING_SECONDS = 10.0
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, uid, gid


def keeper_socket() -> Path:
    """The path of the socket, whether somebody listens there or not."""
    home = os.environ.get("XDG_RUNTIME_DIR") or os.path.expanduser("~/.cache")  # noqa: PTH111 nobody's home is no error
    return Path(home) / "allranks" / "warm.sock"


def is_keeper_there() -> bool:
    """Whether there is a socket; not where it cannot be seen, as in the runtime folder of who called ``su``."""
    return os.path.exists(keeper_socket())  # noqa: PTH110 which raises no PermissionError


def open_listener() -> socket.socket:
    """Listen there, in place of a keeper that has ended.

    Raises:
        CannotRunHereError: there is no place for it: no home, too long a path, or somebody else's folder; or another
            keeper, which may just have begun, is there already.
    """
    from allranks.errors import CannotRunHereError

    path = keeper_socket()
    if not path.is_absolute():
        raise CannotRunHereError("There is no home folder to listen in.", "Set HOME, or XDG_RUNTIME_DIR.")
    if len(os.fsencode(path)) > _MOST_CHARACTERS:
        raise CannotRunHereError(
            f"{path} is longer than a socket's path may be.", "Set XDG_RUNTIME_DIR to a short one."
        )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.parent.stat().st_uid != os.getuid():
        raise CannotRunHereError(f"{path.parent} belongs to another user.", "Set XDG_RUNTIME_DIR to a folder of yours.")
    if not _take_lock(path.with_suffix(".lock")):
        raise CannotRunHereError(f"another keeper listens at {path}.", "See `allranks warm --show`.")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(64)
    return listener


def _take_lock(path: Path) -> bool:
    """Take the lock that a keeper holds for as long as it lives; one that was just stopped has some seconds to end."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if is_keeper_there() or time.monotonic() > until:
                os.close(lock)
                return False
            time.sleep(0.02)
        else:
            return True


def connect_keeper() -> socket.socket | None:
    """A connection to this user's keeper, if there is one."""
    path = keeper_socket()
    if not is_keeper_there():
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    if peer_of(connection)[1] != os.getuid():
        connection.close()
        return None
    return connection


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The id and the user of the process at the other end."""
    text = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(text)
    return pid, user

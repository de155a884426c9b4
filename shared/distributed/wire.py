"""Sockets of the control plane: JSON messages with a length in front, and where to listen."""

from __future__ import annotations

import errno
import json
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from shared.distributed.address import is_loopback
from shared.distributed.errors import ControlError

Message: TypeAlias = dict[str, Any]


class SharedMessage(dict[str, Any]):
    """A message that goes to many, whenever they come for it: it is encoded once, which `encode_once` keeps."""

    encoded: bytes | None = None

    def encode_once(self, encode: Callable[[Message], bytes]) -> bytes:
        """The message as bytes."""
        if self.encoded is None:
            self.encoded = encode(self)
        return self.encoded


_HEADER = struct.Struct(">I")
GREETING_LIMIT = 4096  # bytes that somebody who has not shown the token may send
MESSAGE_LIMIT = 64 * 2**20  # bytes
PORT_PATIENCE = 5.0  # seconds in which what is left of an earlier attempt may still let go of a port
LONGEST_WAIT = 86_400.0  # seconds that the system is asked to wait at once: it counts milliseconds in 31 bits
VALUE_LIMIT = 16 * 2**20  # bytes that one rank may give at once; together they still have to fit into one message


def encode_message(message: Message, limit: int = MESSAGE_LIMIT) -> bytes:
    """The message as bytes: a length of four bytes, then JSON.

    Raises:
        ControlError: it is longer than `limit`.
        TypeError, ValueError: it holds something that JSON cannot.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > limit:
        what = message.get("label") or message.get("key") or "the values of all ranks together"
        raise ControlError(
            f"{what}: a value of {len(body):,} bytes is too much for the control plane (limit {limit:,}). "
            "Write it to a file, and share the path."
        )
    return _HEADER.pack(len(body)) + body


class MessageDecoder:
    """Cuts received bytes into messages.

    Attributes:
        limit: longest message accepted, in bytes; raised once the other side has shown who it is.
    """

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add what was received and yield each message that is complete.

        Raises:
            ValueError: the bytes are not ours: too long, no JSON, or no JSON object.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > self.limit:
                raise ValueError(f"a message of {length:,} bytes, and the limit is {self.limit:,}")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            message = json.loads(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            if not isinstance(message, dict):
                raise ValueError("a message that is no JSON object")  # noqa: TRY004  (one kind of error for all strangers)
            yield message


def exchange_messages(
    connection: socket.socket, decoder: MessageDecoder, data: bytes, timeout: float | None
) -> Message:
    """Send a message and wait for one answer.

    Raises:
        OSError: the connection has ended, or the time of `timeout` seconds is up.
        ValueError: the answer is not one of ours.
    """
    connection.settimeout(None if timeout is None else min(timeout, LONGEST_WAIT))
    connection.sendall(data)
    return receive_message(connection, decoder, timeout)


def receive_message(connection: socket.socket, decoder: MessageDecoder, timeout: float | None) -> Message:
    """Wait for one message; raises as `exchange_messages` does."""
    until = None if timeout is None else time.monotonic() + timeout
    received = b""  # a message may have come with the one before
    while True:
        for message in decoder.feed(received):
            return message
        rest = None if until is None else max(0.001, until - time.monotonic())
        connection.settimeout(None if rest is None else min(rest, LONGEST_WAIT))
        try:
            received = connection.recv(1 << 16)
        except TimeoutError:
            if rest is None or rest <= LONGEST_WAIT:
                raise
            received = b""
            continue
        if not received:
            raise ConnectionError("connection closed")


def allow_open_files(count: int) -> None:
    """Let this process open so many files and sockets more than by default, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 1024 if hard == resource.RLIM_INFINITY else min(count + 1024, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tune_connection(connection: socket.socket) -> None:
    """Send small messages at once, and notice within about a minute that the other machine is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def listen_on_port(address: str, port: int, num_nodes: int, patience: float) -> socket.socket:
    """A listening socket for rank 0: on loopback if that is the main address, else on it, else on every interface.

    With several nodes, a name that happens to mean loopback here is not taken at its word. A process of an earlier
    attempt has `patience` seconds to let go of the port.

    Raises:
        ControlError: the port is taken.
    """
    family, host = _interface(address, port, num_nodes)
    until = time.monotonic() + patience
    while True:
        server = socket.socket(family, socket.SOCK_STREAM)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart does not wait for old connections
        try:
            server.bind((host, port))
            server.listen(socket.SOMAXCONN)
        except OSError as error:
            server.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            if time.monotonic() >= until or error.errno == errno.EACCES:
                raise ControlError(
                    f"Rank 0 cannot listen on port {port} of {address}: {error.strerror}. Set MASTER_PORT to another "
                    "port on every rank, and look for a process of an earlier run (it needs that port and the next)."
                ) from error
            time.sleep(0.1)
        else:
            return server


def _interface(address: str, port: int, num_nodes: int) -> tuple[int, str]:
    """The address family and host to bind to."""
    try:
        found = socket.getaddrinfo(address.strip("[]"), port, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET, ""
    if is_loopback(address) or num_nodes == 1:
        found.sort(key=lambda entry: not is_loopback(str(entry[4][0])))
    for family, _, _, _, target in found:
        host = str(target[0])
        # On Debian a machine's own name means 127.0.1.1, which the other nodes could not reach.
        if is_loopback(host) and num_nodes > 1 and not is_loopback(address):
            continue
        if _is_local(family, host):
            return family, host
    return socket.AF_INET, ""


def _is_local(family: int, host: str) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True

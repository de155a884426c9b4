"""The control plane's server: one thread of rank 0 that carries messages between sockets and the assembly."""

from __future__ import annotations

import itertools
import selectors
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from shared.distributed.assembly import Assembly, Guest
from shared.distributed.errors import ControlError
from shared.distributed.launch import Launch
from shared.distributed.wire import (
    GREETING_LIMIT,
    LONGEST_WAIT,
    MESSAGE_LIMIT,
    Message,
    MessageDecoder,
    SharedMessage,
    encode_message,
    tune_connection,
)

_GREETING_SECONDS = 30.0  # for a connection to say who it is
_ACCEPTED_AT_ONCE = 64


@dataclass(eq=False, slots=True)
class _Connection:
    """A socket, and the guest at its other end."""

    socket: socket.socket
    guest: Guest
    decoder: MessageDecoder = field(default_factory=lambda: MessageDecoder(GREETING_LIMIT))
    unsent: deque[memoryview] = field(default_factory=deque)
    greet_by: float = field(default_factory=lambda: time.monotonic() + _GREETING_SECONDS)


class ControlServer(threading.Thread):
    """Serves one world until ``stop``.

    What a message costs does not grow with the number of ranks: those who have something to do stand in lists.
    """

    def __init__(self, listener: socket.socket, launch: Launch, token: str) -> None:
        super().__init__(name="allranks-control", daemon=True)
        self._assembly = Assembly(launch, token)
        self._connections: dict[Guest, _Connection] = {}
        self._strangers: dict[_Connection, None] = {}  # who has not greeted, the oldest first
        self._due: list[Guest] = []  # who has something in the outbox, or is to be let go
        self._unsent: set[_Connection] = set()  # what has more to send than its socket took
        self._stop_at: float | None = None
        self._listener = listener
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for each in (listener, self._wake_read):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)

    def stop(self, grace: float) -> None:
        """End the thread when all members have left, or after ``grace`` seconds."""
        self._stop_at = time.monotonic() + grace
        with suppress(OSError):  # it has ended already, or this is a forked child
            self._wake_write.send(b"x")
        self.join(grace + 5)

    def close_sockets(self) -> None:
        """Close everything; in a forked child too, which would else keep the connections of a dead parent open."""
        links = self._connections.values()
        for each in (self._listener, self._wake_read, self._wake_write, *(link.socket for link in links)):
            each.close()

    def run(self) -> None:
        """Serve until stopped."""
        try:
            while not self._may_stop():
                for key, _ in self._selector.select(self._patience()):
                    self._serve(key)
                self._expire()
                self._deliver()
        finally:
            self._selector.close()
            self.close_sockets()

    def _may_stop(self) -> bool:
        if self._stop_at is None:
            return False
        finished = self._assembly.done and not any(link.unsent for link in self._unsent)
        return finished or time.monotonic() >= self._stop_at

    def _patience(self) -> float | None:
        """Seconds until something has to be done even if nobody speaks."""
        times = [link.greet_by for link in itertools.islice(self._strangers, 1)]
        times += [time for time in (self._stop_at, self._assembly.next_deadline()) if time is not None]
        return max(0.0, min(min(times) - time.monotonic(), LONGEST_WAIT)) if times else None

    def _expire(self) -> None:
        now = time.monotonic()
        for link in list(itertools.takewhile(lambda link: link.greet_by <= now, self._strangers)):
            self._drop(link)
        self._assembly.expire(now)

    def _serve(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._wake_read:
            self._wake_read.recv(64)
        else:
            self._receive(key.data)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return  # there are no more, or it has gone again before it was taken
            accepted.setblocking(False)
            tune_connection(accepted)
            link = _Connection(accepted, Guest(due=self._due))
            self._connections[link.guest] = link
            self._strangers[link] = None
            self._selector.register(accepted, selectors.EVENT_READ, link)

    def _receive(self, link: _Connection) -> None:
        """Take what has come; whoever sends something that is not ours is dropped."""
        try:
            data = link.socket.recv(1 << 16)
            for message in link.decoder.feed(data):
                self._assembly.handle(link.guest, message)
                if link.guest.member is not None:
                    link.decoder.limit = MESSAGE_LIMIT
                    self._strangers.pop(link, None)
                if link.guest.closing:
                    self._due.append(link.guest)
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            data = b""
        if not data:
            self._drop(link)

    def _deliver(self) -> None:
        """Send what waits in the outboxes, as far as the sockets take it; to rank 0 last.

        Rank 0 may go on into a call that keeps Python's lock until the others are there too, as TensorFlow's start
        does; this thread could then tell them no more that they may go on.
        """
        for link in list(self._unsent):
            self._flush(link)
        while self._due:
            due = sorted(self._due, key=lambda guest: guest.is_rank_0)
            self._due.clear()
            for guest in due:
                messages, guest.outbox = guest.outbox, []
                if guest in self._connections:
                    link = self._connections[guest]
                    link.unsent += [memoryview(_encode(message)) for message in messages]
                    self._flush(link)  # a failure here may fill other outboxes

    def _flush(self, link: _Connection) -> None:
        try:
            while link.unsent:
                rest = link.unsent[0][link.socket.send(link.unsent[0]) :]
                if rest:
                    link.unsent[0] = rest
                else:
                    link.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._drop(link)
            return
        if link.guest.closing and not link.unsent:
            self._drop(link)
        elif link.unsent and link not in self._unsent:
            self._unsent.add(link)
            self._selector.modify(link.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, link)
        elif not link.unsent and link in self._unsent:
            self._unsent.remove(link)
            self._selector.modify(link.socket, selectors.EVENT_READ, link)

    def _drop(self, link: _Connection) -> None:
        if self._connections.pop(link.guest, None) is not None:
            self._strangers.pop(link, None)
            self._unsent.discard(link)
            self._selector.unregister(link.socket)
            link.socket.close()
            self._assembly.lose(link.guest)


def _encode(message: Message) -> bytes:
    return message.encode_once(_encode_any) if isinstance(message, SharedMessage) else _encode_any(message)


def _encode_any(message: Message) -> bytes:
    try:
        return encode_message(message)
    except ControlError as error:  # together the ranks gave more than one message holds
        return encode_message({"error": "usage", "message": str(error)})

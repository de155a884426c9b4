"""The control plane: how the ranks of a step find each other, agree, and learn at once when one of them dies.

Rank 0 serves it, with the standard library alone, on the port after the main one; messages are JSON. It works before
and without any framework, whose own groups carry tensors only.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shared.distributed.assembly import Assembly, Guest, LeaderScope, MeetingKind, hello_message
from shared.distributed.errors import ControlError, PeerError, Refusal, UnsavedError, WaitTimeoutError
from shared.distributed.launch import Launch
from shared.distributed.server import ControlServer
from shared.distributed.wire import (
    VALUE_LIMIT,
    Message,
    MessageDecoder,
    encode_message,
    exchange_messages,
    receive_message,
)

ANSWER_SECONDS = 10.0  # the server answers within its own time-out; this much later it hangs
_FAIL_SECONDS = 1.0  # a rank that fails waits no longer for the answer that tells whether another had failed before

ANSWER_ERRORS: dict[str, type[Exception]] = {
    "timeout": WaitTimeoutError,
    "peer": PeerError,
    "stalled": PeerError,
    Refusal.kind: Refusal,
    UnsavedError.kind: UnsavedError,
}


class Control(ABC):
    """What a rank asks of the others. Times are in seconds; None waits as long as all are alive.

    Every method may raise ``PeerError`` (a rank died, failed or left), ``WaitTimeoutError``, ``Refusal`` (another rank
    refused), or ``ControlError``.

    Attributes:
        world_id: the same on every rank, and another one for each start.
        main_port: the framework's port at the main address; another one than the launch's where that was taken.
        start_timeout: seconds for what all ranks do before the world is ready; None for as long as all are alive.
        is_ending: set once this rank leaves, fails or refuses.
    """

    start_timeout: float | None = None

    def __init__(self, world_id: str, main_port: int) -> None:
        self.world_id = world_id
        self.main_port = main_port
        self._uses: Counter[tuple[str, str, str]] = Counter()
        self.is_ending = threading.Event()
        self._lock = threading.Lock()
        self._out_of_step = False  # a question went out whose answer was not waited for
        self._told: tuple[str | None] | None = None

    def set(self, key: str, value: object) -> None:
        """Store a JSON value under a key."""
        self._ask({"op": "set", "key": f"value/{key}", "value": value}, ANSWER_SECONDS)

    def get(self, key: str, timeout: float | None = None) -> Any:
        """The value under a key, as soon as somebody has stored it."""
        return self._ask({"op": "get", "key": f"value/{key}", "timeout": timeout}, timeout)

    def meet(
        self,
        kind: MeetingKind,
        name: str,
        timeout: float | None,
        value: object = None,
        *,
        brings: bool = True,
        scope: LeaderScope = "job",
    ) -> Any:
        """Meet all other ranks under a name, which may be used again: the n-th use here meets the n-th use there.

        This rank brings the JSON value; without `brings` it only waits for the outcome. `scope` is a ``once``'s.
        """
        self._uses[kind, scope, name] += 1
        key = f"{kind}/{scope}/{self._uses[kind, scope, name]}/{name}"
        label = "start" if kind == "join" else f"{kind} {name!r}"
        message = {"op": "meet", "kind": kind, "scope": scope, "key": key, "label": label, "value": value}
        return self._ask({**message, "brings": brings, "timeout": timeout}, timeout)

    def fail(self, error: BaseException) -> str | None:
        """Tell the others that this rank fails, and with what; what went wrong before, if anything; never raises.

        Only the first call tells; later ones give the same answer, since a rank fails once.
        """
        self.is_ending.set()
        if self._told is None:
            message = {"op": "fail", "type": type(error).__name__, "message": str(error)[:2000]}
            self._told = (self._tell(message, _FAIL_SECONDS),)
        return self._told[0]

    def refuse(self, text: str, kind: str = Refusal.kind) -> None:
        """Have rank 0 print the reason, once, and return when it has; never raises."""
        self.is_ending.set()
        self._tell({"op": "refuse", "message": text, "kind": kind}, ANSWER_SECONDS)

    def bad_news(self) -> str | None:
        """What has broken the world, if this rank works on all the same; never waits."""
        return None

    @abstractmethod
    def open_channel(self, name: str) -> Control:
        """Connect once more, for a thread of this rank that waits for the same thread of the others.

        What it waits for does not keep this connection from being used, and it ends with `leave`.
        """

    @abstractmethod
    def leave(self, grace: float) -> None:
        """Say goodbye; rank 0 waits up to ``grace`` seconds until all others have done so."""

    def _ask(self, message: Message, timeout: float | None) -> Any:
        return self._ask_within(message, None if timeout is None else timeout + ANSWER_SECONDS)

    def _ask_within(self, message: Message, limit: float | None) -> Any:
        data = encode_message(message, VALUE_LIMIT)
        if not self._lock.acquire(timeout=-1 if limit is None else limit):
            raise WaitTimeoutError("Another thread of this rank still waits for the others.")
        try:
            if self._out_of_step:
                raise ControlError("An earlier call was interrupted, so this rank cannot go on with the others.")
            self._out_of_step = True
            answer = self._exchange(data, limit)
            self._out_of_step = False
        finally:
            self._lock.release()
        if "ok" in answer:
            return answer["ok"]
        raise ANSWER_ERRORS.get(answer["error"], ControlError)(answer["message"])

    def _tell(self, message: Message, limit: float) -> str | None:
        """Ask without raising, since this rank ends anyway; what went wrong before, if anything."""
        self._out_of_step = False
        try:
            return self._ask_within(message, limit)
        except PeerError as gone:
            return str(gone)
        except (Refusal, ControlError, OSError):
            return None

    @abstractmethod
    def _exchange(self, data: bytes, timeout: float | None) -> Message:
        """Send one message and return the answer to it."""


class AloneControl(Control):
    """The control plane of a world of one: the same rules, and no socket."""

    def __init__(self, launch: Launch) -> None:
        assembly, guest = Assembly(launch, token=""), Guest()
        super().__init__(assembly.world_id, launch.main_port)
        self._assembly, self._guest, self._launch = assembly, guest, launch
        self._exchange(encode_message(hello_message(launch, token="")), None)

    def open_channel(self, name: str) -> Control:
        """Nobody else is there to be waited for: another world of one does."""
        return AloneControl(self._launch)

    def leave(self, grace: float) -> None:
        """There is nobody to say goodbye to."""
        self.is_ending.set()

    def _exchange(self, data: bytes, timeout: float | None) -> Message:
        for message in MessageDecoder().feed(data):
            self._assembly.handle(self._guest, message)
        if not self._guest.outbox:
            self._guest.send({"error": "timeout", "message": f"Nobody can set {self._guest.waiting!r} any more."})
        return self._guest.outbox.pop()


class SocketControl(Control):
    """A connection to the server in rank 0; in rank 0 it owns the server too.

    `reconnect` makes a further connection under a name.
    """

    def __init__(
        self,
        connection: socket.socket,
        world_id: str,
        main_port: int,
        reconnect: Callable[[str], socket.socket],
        server: ControlServer | None = None,
    ) -> None:
        super().__init__(world_id, main_port)
        self._reconnect = reconnect
        self._socket = connection
        self._decoder = MessageDecoder()
        self._server = server
        self._news: Message | None = None
        _OPEN.add(self)

    def open_channel(self, name: str) -> Control:
        """Connect once more; see `Control`."""
        try:
            connection = self._reconnect(name)
        except OSError as error:
            raise PeerError(f"Rank 0 (node 0) is gone ({error}). Its own log says why.") from None
        return SocketControl(connection, self.world_id, self.main_port, self._reconnect)

    def bad_news(self) -> str | None:
        """What has broken the world, if this rank works on all the same; never waits."""
        if self._news is None and self._lock.acquire(blocking=False):  # else an answer is waited for, which will say it
            try:
                self._news = next(iter(self.received()), None)
            finally:
                self._lock.release()
        return None if self._news is None else str(self._news["message"])

    def post(self, message: Message) -> None:
        """Send a message whose answer `received` returns later; never raises."""
        with self._lock, suppress(OSError):  # `received` says that rank 0 is gone
            self._socket.sendall(encode_message(message))

    def wait(self, seconds: float) -> None:
        """Wait until something can be received, or the time is up."""
        ready = select.poll()
        ready.register(self._socket, select.POLLIN)
        ready.poll(1e3 * seconds)

    def received(self) -> list[Message]:
        """Return the messages that have come; an error once rank 0 is gone. Never waits."""
        gone = {"error": "peer", "message": "Rank 0 (node 0) is gone. Its own log says why."}
        try:
            found = list(self._decoder.feed(b""))  # it may have come with the last answer
            ready = select.poll()
            ready.register(self._socket, select.POLLIN)
            if not found and ready.poll(0):
                data = self._socket.recv(1 << 16)
                found = list(self._decoder.feed(data)) if data else [gone]
        except (OSError, ValueError):
            return [gone]
        return found

    def leave(self, grace: float) -> None:
        """Say goodbye; rank 0 waits up to ``grace`` seconds until all others have done so."""
        self.is_ending.set()
        with suppress(OSError):
            self._socket.sendall(encode_message({"op": "bye"}))
        self._socket.close()
        if self._server is not None:
            self._server.stop(grace)

    def close_sockets(self) -> None:
        """Close everything without a word."""
        self._socket.close()
        if self._server is not None:
            self._server.close_sockets()

    def _exchange(self, data: bytes, timeout: float | None) -> Message:
        try:
            answer = exchange_messages(self._socket, self._decoder, data, timeout)
            while "news" in answer:
                self._news, answer = answer, receive_message(self._socket, self._decoder, timeout)
        except TimeoutError:
            raise WaitTimeoutError("Rank 0 (node 0) does not answer: its process is stopped or hangs.") from None
        except (OSError, ValueError) as error:
            self._out_of_step = False  # there is nothing to be out of step with: the next call says the same
            raise PeerError(f"Rank 0 (node 0) is gone ({error}). Its own log says why.") from None
        return answer


_OPEN: weakref.WeakSet[SocketControl] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child has no part in the world, and must not keep a dead parent's connection open."""
    for control in list(_OPEN):
        control.close_sockets()


os.register_at_fork(after_in_child=_close_in_child)

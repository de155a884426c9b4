"""The control plane: how the ranks of a step find each other, agree, and learn at once when one of them dies.

Rank 0 serves it, with the standard library alone, on the port after the main one; messages are JSON. It works before
and without any framework, whose own groups carry tensors only.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import socket
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from shared.distributed.address import job_id, spare_ports
from shared.distributed.assembly import Assembly, Guest, world_of
from shared.distributed.errors import ControlError, PeerError, Refusal, WaitTimeoutError
from shared.distributed.families import Environ
from shared.distributed.launch import Launch
from shared.distributed.server import ControlServer
from shared.distributed.wire import VALUE_LIMIT, Decoder, Message, encode, listen, tune

PATIENCE = 5.0  # seconds in which what is left of an earlier attempt may still end
ANSWER_SECONDS = 10.0  # the server answers within its own time-out; this much later it hangs
FAIL_SECONDS = 1.0  # a rank that fails waits no longer for the answer that tells whether another had failed before

ERRORS: dict[str, type[Exception]] = {"timeout": WaitTimeoutError, "peer": PeerError, "refused": Refusal}


class Control(ABC):
    """What a rank asks of the others. Times are in seconds; None waits as long as all are alive.

    Every method may raise ``PeerError`` (a rank died, failed or left), ``WaitTimeoutError``, ``Refusal`` (another rank
    refused), or ``ControlError``.

    Attributes:
        world_id: the same on every rank, and another one for each start.
        main_port: the framework's port at the main address; another one than the launch's where that was taken.
        start_timeout: seconds for what all ranks do before the world is ready; None for as long as all are alive.
    """

    start_timeout: float | None = None

    def __init__(self, world_id: str, main_port: int) -> None:
        self.world_id = world_id
        self.main_port = main_port
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._out_of_step = False  # a question went out whose answer was not waited for
        self._told: tuple[str | None] | None = None

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value under a key."""
        self._ask({"op": "set", "key": _key("value", key), "value": value}, ANSWER_SECONDS)

    def get(self, key: str, timeout: float | None = None) -> Any:
        """The value under a key, as soon as somebody has stored it."""
        return self._ask({"op": "get", "key": _key("value", key), "timeout": timeout}, timeout)

    def join(self, timeout: float) -> None:
        """Wait until every member of the world is there."""
        self.meet("join", "start", timeout)

    def meet(self, kind: str, name: str, timeout: float | None, value: Any = None, *, brings: bool = True) -> Any:
        """Meet all other ranks under a name, which may be used again: the n-th use here meets the n-th use there.

        Args:
            kind: ``join``, ``barrier``, ``gather``, ``collect``, ``sum``, ``once node`` or ``once job``.
            name: the meeting's name.
            timeout: seconds.
            value: the JSON value that this rank brings.
            brings: False for a rank that only waits for the outcome.
        """
        label = "start" if kind == "join" else f"{kind.partition(' ')[0]} {name!r}"
        self._uses[kind + name] += 1
        key = _key(kind, f"{self._uses[kind + name]} {name}")
        message = {"op": "meet", "kind": kind, "key": key, "label": label, "value": value, "brings": brings}
        return self._ask({**message, "timeout": timeout}, timeout)

    def fail(self, error: BaseException) -> str | None:
        """Tell the others that this rank fails, and with what; what went wrong before, if anything; never raises.

        Only the first call tells; later ones give the same answer, since a rank fails once.
        """
        if self._told is None:
            message = {"op": "fail", "type": type(error).__name__, "message": str(error)[:2000]}
            self._told = (self._tell(message, FAIL_SECONDS),)
        return self._told[0]

    def refuse(self, text: str) -> None:
        """Have rank 0 print the reason, once, and return when it has; never raises."""
        self._tell({"op": "refuse", "message": text}, ANSWER_SECONDS)

    @abstractmethod
    def leave(self, grace: float) -> None:
        """Say goodbye; rank 0 waits up to ``grace`` seconds until all others have done so."""

    def _ask(self, message: Message, timeout: float | None) -> Any:
        return self._ask_within(message, None if timeout is None else timeout + ANSWER_SECONDS)

    def _ask_within(self, message: Message, limit: float | None) -> Any:
        data = encode(message, VALUE_LIMIT)
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
        raise ERRORS.get(answer["error"], ControlError)(answer["message"])

    def _tell(self, message: Message, limit: float) -> str | None:
        """Ask without raising, since this rank ends anyway; what went wrong before, if anything."""
        self._out_of_step = False
        try:
            cause: str | None = self._ask_within(message, limit)
        except PeerError as gone:
            return str(gone)
        except (Refusal, ControlError, OSError):
            return None
        return cause

    @abstractmethod
    def _exchange(self, data: bytes, timeout: float | None) -> Message:
        """Send one message and return the answer to it."""


class AloneControl(Control):
    """The control plane of a world of one: the same rules, and no socket."""

    def __init__(self, launch: Launch) -> None:
        assembly, guest = Assembly(launch, token=""), Guest()
        super().__init__(assembly.world_id, launch.main_port)
        self._assembly, self._guest = assembly, guest
        self._exchange(encode(_hello(launch, token="")), None)

    def leave(self, grace: float) -> None:
        """There is nobody to say goodbye to."""

    def _exchange(self, data: bytes, timeout: float | None) -> Message:  # noqa: ARG002
        for message in Decoder().feed(data):
            self._assembly.handle(self._guest, message)
        if not self._guest.outbox:
            self._guest.send({"error": "timeout", "message": f"Nobody can set {self._guest.waiting!r} any more."})
        return self._guest.outbox.pop()


class SocketControl(Control):
    """A connection to the server in rank 0; in rank 0 it owns the server too."""

    def __init__(
        self, connection: socket.socket, world_id: str, main_port: int, server: ControlServer | None = None
    ) -> None:
        super().__init__(world_id, main_port)
        self._socket = connection
        self._decoder = Decoder()
        self._server = server
        _OPEN.add(self)

    def leave(self, grace: float) -> None:
        """Say goodbye; rank 0 waits up to ``grace`` seconds until all others have done so."""
        with suppress(OSError):
            self._socket.sendall(encode({"op": "bye"}))
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
            return _exchange(self._socket, self._decoder, data, timeout)
        except TimeoutError:
            raise WaitTimeoutError("Rank 0 (node 0) does not answer: its process is stopped or hangs.") from None
        except (OSError, ValueError) as error:
            self._out_of_step = False  # there is nothing to be out of step with: the next call says the same
            raise PeerError(f"Rank 0 (node 0) is gone ({error}). Its own log says why.") from None


def connect(launch: Launch, environ: Environ, timeout: float) -> Control:
    """Join the world: rank 0 serves, every rank connects, and all wait until all are there and agree.

    Where nobody has chosen a port and another job holds the launch's, rank 0 takes the next one that is free, and the
    others, whom that job turns away, find it there.

    Raises:
        ControlError: the port is taken, nobody answers, the ranks see different worlds, or a rank is there twice.
        WaitTimeoutError: after ``timeout`` seconds ranks are missing; the message names them.
        PeerError: a rank died meanwhile.
    """
    if launch.alone:
        return AloneControl(launch)
    token = job_token(launch, environ)
    until = time.monotonic() + timeout
    ports = spare_ports(environ, launch.launcher, launch.main_port)
    server = None
    if launch.role == "worker" and launch.rank == 0:
        listener, port = _listen_on_first_free(launch, ports, token, min(PATIENCE, timeout))
        ports = (port,)
        server = ControlServer(listener, launch, token)
        server.start()
    control = None
    try:
        connection, world_id, port = _find_server(launch, ports, token, until)
        control = SocketControl(connection, world_id, port, server)
        control.start_timeout = timeout
        control.join(max(1.0, until - time.monotonic()))
    except BaseException:
        if control is not None:
            control.leave(grace=3.0)
        elif server is not None:
            server.stop(grace=3.0)
        raise
    return control


def job_token(launch: Launch, environ: Environ) -> str:
    """What the processes of one job have in common: a hash of the ids of run and launch, else of the address."""
    # Not the world's size: ranks that disagree about that should hear so, and not meet a stranger.
    known = job_id(environ, launch.launcher) or f"{launch.main_address}\n{launch.main_port}"
    return hashlib.sha256(known.encode()).hexdigest()


def _listen_on_first_free(
    launch: Launch, ports: Sequence[int], token: str, patience: float
) -> tuple[socket.socket, int]:
    """Listen on the first control port that no other job has, nor the main port before it; and that main port.

    A port that an earlier attempt of this job holds is waited for: it ends, and the other ranks look for us there.
    """
    for port in ports[:-1]:
        with suppress(ControlError):
            listen(launch.main_address, port, launch.num_nodes, 0).close()
            with suppress(ControlError):
                return listen(launch.main_address, port + 1, launch.num_nodes, 0), port
            if _is_ours(launch, port, token):
                return listen(launch.main_address, port + 1, launch.num_nodes, patience), port
    return listen(launch.main_address, ports[-1] + 1, launch.num_nodes, patience), ports[-1]


def _is_ours(launch: Launch, port: int, token: str) -> bool:
    """Whether the control plane at a port is one of this job."""
    try:
        _enter(launch, port, encode({"op": "whose", "token": token}), 1.0)
    except _TurnedAwayError as turned_away:
        return turned_away.kind == "ours"
    except (OSError, ValueError):
        return False
    return False


def _find_server(launch: Launch, ports: Sequence[int], token: str, until: float) -> tuple[socket.socket, str, int]:
    """Try to connect and to be let in until the time is up; return the connection, the world's id and its main port."""
    where = f"{launch.main_address}:{launch.control_port}"
    hello = encode(_hello(launch, token))
    reasons: dict[int, str] = {}
    stale_until: float | None = None
    for attempt in itertools.count():
        port = ports[attempt % len(ports)]
        try:
            return *_enter(launch, port, hello, max(0.1, min(until - time.monotonic(), ANSWER_SECONDS))), port
        except _TurnedAwayError as turned_away:
            reasons[port] = str(turned_away)
            stale_until = stale_until or time.monotonic() + PATIENCE
            if turned_away.kind in ("world", "refused"):
                raise ERRORS.get(turned_away.kind, ControlError)(reasons[port]) from None
            if turned_away.kind == "stale" and time.monotonic() > stale_until:
                raise ControlError(f"{turned_away} (the control plane at {where})") from None
        except (OSError, ValueError) as error:
            reasons[port] = str(error) or type(error).__name__
        if time.monotonic() >= until:
            raise WaitTimeoutError(
                f"Rank {launch.rank} (node {launch.node_rank}) cannot reach rank 0 at {where}: {reasons[ports[0]]}. "
                "Check that rank 0 has started, that MASTER_ADDR and MASTER_PORT are the same on all ranks, and that "
                "the nodes reach each other on that port."
            )
        if port == ports[-1]:
            rounds = attempt // len(ports)
            time.sleep(min(0.5, 0.02 * 1.5 ** min(rounds, 10), max(0.0, until - time.monotonic())))
    raise AssertionError  # the loop above has no end


class _TurnedAwayError(Exception):
    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def _enter(launch: Launch, port: int, greeting: bytes, timeout: float) -> tuple[socket.socket, str]:
    """Connect to the control plane beside a main port; the connection and the answer to the greeting."""
    connection = socket.create_connection((launch.main_address.strip("[]"), port + 1), timeout)
    with ExitStack() as on_error:
        on_error.enter_context(connection)
        # Linux may connect a socket to itself on a free local port.
        if connection.getsockname() == connection.getpeername():
            raise OSError("nobody listens there")
        tune(connection)
        answer = _exchange(connection, Decoder(), greeting, timeout)
        if "ok" not in answer:
            raise _TurnedAwayError(str(answer.get("error")), str(answer.get("message")))
        on_error.pop_all()
    return connection, str(answer["ok"])


def _hello(launch: Launch, token: str) -> Message:
    return {
        "op": "hello",
        "token": token,
        "role": launch.role,
        "rank": launch.rank,
        "node": launch.node_rank,
        "local_rank": launch.local_rank,
        "where": f"process {os.getpid()} on {socket.gethostname()}",
        "host": socket.gethostname(),
        "world": world_of(launch),
    }


def _exchange(connection: socket.socket, decoder: Decoder, data: bytes, timeout: float | None) -> Message:
    """Send a message and wait for one answer."""
    connection.settimeout(timeout)
    connection.sendall(data)
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        received = connection.recv(1 << 16)
        if not received:
            raise ConnectionError("connection closed")
        for answer in decoder.feed(received):
            return answer
        if until is not None:
            connection.settimeout(max(0.001, until - time.monotonic()))


def _key(kind: str, name: str) -> str:
    return f"{kind}/{name}"


_OPEN: weakref.WeakSet[SocketControl] = weakref.WeakSet()


def _close_in_child() -> None:
    """A forked child has no part in the world, and must not keep a dead parent's connection open."""
    for control in list(_OPEN):
        control.close_sockets()


os.register_at_fork(after_in_child=_close_in_child)

"""How a rank joins its world: rank 0 listens, all find it, and nobody takes another job's server for its own."""

from __future__ import annotations

import hashlib
import itertools
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from shared.distributed.address import has_agent_store, job_id, spare_ports
from shared.distributed.assembly import HEARTBEAT_OF, hello_message, member_title
from shared.distributed.control import ANSWER_ERRORS, ANSWER_SECONDS, AloneControl, Control, SocketControl
from shared.distributed.errors import ControlError, WaitTimeoutError
from shared.distributed.families import Environ
from shared.distributed.launch import Launch
from shared.distributed.liveness import Heartbeat
from shared.distributed.server import ControlServer
from shared.distributed.wire import (
    PORT_PATIENCE,
    MessageDecoder,
    allow_open_files,
    encode_message,
    exchange_messages,
    listen_on_port,
    tune_connection,
)


def join_world(launch: Launch, environ: Environ, timeout: float) -> Control:
    """Join the world: rank 0 serves, every rank connects, and all wait until all are there and agree.

    Where nobody has chosen a port and another job holds the launch's, rank 0 takes the next one that is free, and the
    others, whom that job turns away, find it there.

    Raises:
        ControlError: the port is taken, nobody answers, the ranks see different worlds, or a rank is there twice.
        WaitTimeoutError: after ``timeout`` seconds ranks are missing; the message names them.
        PeerError: a rank died meanwhile.
    """
    title = f"{member_title((launch.role, launch.rank))} (node {launch.node_rank})"
    if launch.alone:
        alone = AloneControl(launch)
        Heartbeat(alone, title, "", 1).start()
        return alone
    token = _job_token(launch, environ)
    until = time.monotonic() + timeout
    ports, is_held = spare_ports(environ, launch.launcher, launch.main_port), has_agent_store(environ, launch.launcher)
    server = None
    if launch.role == "worker" and launch.rank == 0:
        listener, port = _listen_on_first_free(launch, ports, token, min(PORT_PATIENCE, timeout), is_held=is_held)
        ports = (port,)
        allow_open_files(3 * (launch.world_size + launch.num_ps))  # of a rank, its heartbeat, and a thread of it
        server = ControlServer(listener, launch, token)
        server.start()
    control = None
    try:
        connection, world_id, port = _find_server(launch, ports, token, until)

        def reconnect(channel: str) -> socket.socket:
            greeting = encode_message(hello_message(launch, token, channel))
            try:
                return _enter(launch, port, greeting, ANSWER_SECONDS)[0]
            except _TurnedAwayError as turned_away:
                raise ConnectionRefusedError(str(turned_away)) from None

        main_port = launch.main_port if is_held else port
        control = SocketControl(connection, world_id, main_port, reconnect, server)
        control.start_timeout = timeout
        # Before the ranks meet: rank 0 may then go into a call that holds Python's lock.
        Heartbeat(control, title, f"{HEARTBEAT_OF}{launch.role}", launch.world_size + launch.num_ps).start()
        control.meet("join", "start", max(1.0, until - time.monotonic()))
    except BaseException:
        if control is not None:
            control.leave(grace=3.0)
        elif server is not None:
            server.stop(grace=3.0)
        raise
    return control


def _job_token(launch: Launch, environ: Environ) -> str:
    """Return what the processes of one job have in common, as a hash: the engine's token, ids, or the address.

    The token is a secret that `allranks run` gives the ranks of an attempt. On Azure ML no variable is one: there the
    token keeps ranks of other jobs apart, and the nodes' network keeps others out.
    """
    # Not the world's size: ranks that disagree about that should hear so, and not meet a stranger.
    known = environ.get("ALLRANKS_JOB_TOKEN") or job_id(environ, launch.launcher)
    known = known or f"{launch.main_address}\n{launch.main_port}"
    return hashlib.sha256(known.encode()).hexdigest()


def _listen_on_first_free(
    launch: Launch, ports: Sequence[int], token: str, patience: float, *, is_held: bool
) -> tuple[socket.socket, int]:
    """Listen on the first control port that no other job has, nor the main port before it; and that main port.

    The launcher itself may hold that one (`is_held`): then only the control plane's changes.
    A port that an earlier attempt of this job holds is waited for: it ends, and the other ranks look for us there.
    """
    for port in ports[:-1]:
        with suppress(ControlError):
            if not is_held:
                listen_on_port(launch.main_address, port, launch.num_nodes, 0).close()
            with suppress(ControlError):
                return listen_on_port(launch.main_address, port + 1, launch.num_nodes, 0), port
            if _is_ours(launch, port, token):
                return listen_on_port(launch.main_address, port + 1, launch.num_nodes, patience), port
    return listen_on_port(launch.main_address, ports[-1] + 1, launch.num_nodes, patience), ports[-1]


def _is_ours(launch: Launch, port: int, token: str) -> bool:
    """Whether the control plane at a port is one of this job."""
    try:
        _enter(launch, port, encode_message({"op": "whose", "token": token}), 1.0)
    except _TurnedAwayError as turned_away:
        return turned_away.kind == "ours"
    except (OSError, ValueError):
        return False
    return False


def _find_server(launch: Launch, ports: Sequence[int], token: str, until: float) -> tuple[socket.socket, str, int]:
    """Try to connect and to be let in until the time is up; return the connection, the world's id and its main port."""
    where = f"{launch.main_address}:{launch.control_port}"
    hello = encode_message(hello_message(launch, token))
    reasons: dict[int, str] = {}
    stale_until: float | None = None
    for attempt in itertools.count():
        port = ports[attempt % len(ports)]
        try:
            return *_enter(launch, port, hello, max(0.1, min(until - time.monotonic(), ANSWER_SECONDS))), port
        except _TurnedAwayError as turned_away:
            reasons[port] = str(turned_away)
            stale_until = stale_until or time.monotonic() + PORT_PATIENCE
            if turned_away.kind in ("world", "refused"):
                raise ANSWER_ERRORS.get(turned_away.kind, ControlError)(reasons[port]) from None
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
        tune_connection(connection)
        answer = exchange_messages(connection, MessageDecoder(), greeting, timeout)
        if "ok" not in answer:
            raise _TurnedAwayError(str(answer.get("error")), str(answer.get("message")))
        on_error.pop_all()
    return connection, str(answer["ok"])

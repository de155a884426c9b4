"""A small process beside each rank, which notices that the rank was stopped: no thread of the rank itself can.

It looks at the state of its rank twice a second. Of one that stays stopped (SIGSTOP, or a job control that has lost
sight of it) it has the stack written and tells the control plane, whose news reach the sentries of all other ranks:
these have theirs written too, and every rank is ended by its own sentry, the stopped one first. A debugger's stop is
another state, and a machine that sleeps stops the sentry too, which counts its own looks and not the clock.

This file is also the program, which is started by its path and has the standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time

LOOK_SECONDS = 0.5
STOPPED_LOOKS = 8
"""Of so many looks in a row a stopped rank was seen: of no more than 4.5 s."""
CONNECT_SECONDS = 10.0
_CAUSE_SECONDS = 0.5  # which the stopped rank has for its stack, and rank 0 for telling the others
_END_SECONDS = 1.0  # which the others have for theirs; launchers report the rank that ends first
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # a group is sent them for its rank

_started: list[object] = []  # kept, or Python warns that they still run


def start_sentry(title: str, host: str, port: int, greeting: bytes) -> int | None:
    """Start the sentry of this process, and do not wait for it; its number, or None where there can be none.

    Args:
        title: of this rank, such as ``rank 3 (node 1)``.
        host: where the control plane listens.
        port: and at which port.
        greeting: what lets the sentry in there.
    """
    import subprocess  # which the program does without

    if not hasattr(os, "pidfd_open") or not sys.executable:
        return None
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    about = {"title": title, "host": host, "port": port, "greeting": greeting.decode("latin-1")}
    with contextlib.suppress(OSError):
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        _started.append(started)
        assert started.stdin is not None  # noqa: S101
        with started.stdin as pipe:  # not in its arguments, which everybody on the machine may read
            pipe.write(json.dumps(about).encode())
        return started.pid
    return None


def watch(pid: int, title: str, connection: socket.socket | None) -> None:
    """Watch the process until it ends; end it once it, or another rank, stands still."""
    rank, state = os.pidfd_open(pid), os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    if os.getppid() != pid:  # it has ended meanwhile, and its number may be another's
        return
    sources: list[int | socket.socket] = [rank] if connection is None else [rank, connection]
    received, looks = b"", 0
    while True:
        began = time.monotonic()
        ready = select.select(sources, [], [], LOOK_SECONDS)[0]
        if rank in ready:
            return
        if connection is not None and connection in ready:
            data = _receive(connection)
            received += data
            if not data:
                sources.remove(connection)  # the world has ended, and this rank is about to
            elif (news := stalled_news(received)) is not None:
                _say(f"distributed: {news} This rank is ended with it; where it stood:")
                _end(rank, _END_SECONDS, signal.SIGUSR1)
                return
        was_asleep = time.monotonic() - began > 4 * LOOK_SECONDS
        looks = looks + 1 if is_stopped(state) and not was_asleep else 0
        if looks >= STOPPED_LOOKS:
            seconds = looks * LOOK_SECONDS
            told = f"{title} stands still: its process was stopped {seconds:.0f} s ago, and nobody has continued it."
            _say(f"distributed: {told} It is ended; where it stood:")
            # It goes on for a moment, in which the stack comes first: in rank 0 that moment is the control plane's.
            _signal(rank, signal.SIGUSR1, signal.SIGCONT)
            if connection is not None:
                _send(connection, {"op": "stalled", "message": told})
            _end(rank, _CAUSE_SECONDS)
            return


def is_stopped(state: int) -> bool:
    """Whether a process is stopped, and not by a debugger; ``state`` is its open /proc/PID/stat."""
    try:
        return os.pread(state, 4096, 0).rpartition(b")")[2].split()[0] == b"T"
    except ProcessLookupError:
        return False


def stalled_news(received: bytes) -> str | None:
    """Which rank stands still, if one of the messages says so; they are those of ``wire.py``."""
    while len(received) >= 4:
        length = 4 + int.from_bytes(received[:4], "big")
        message = received[4:length]
        if len(received) >= length and b'"stalled"' in message:
            found = json.loads(message)
            if found.get("error") == "stalled":
                return str(found["message"])
        received = received[length:]
    return None


def connect(host: str, port: int, greeting: bytes) -> socket.socket | None:
    """A connection to the control plane; None without one, with which the sentry still watches its own rank."""
    try:
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
        connection.sendall(greeting)
        connection.settimeout(None)
    except OSError:
        return None
    return connection


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _send(connection: socket.socket, message: dict[str, str]) -> None:
    body = json.dumps(message).encode()
    with contextlib.suppress(OSError):  # rank 0 is gone: the others know that
        connection.sendall(len(body).to_bytes(4, "big") + body)


def _end(rank: int, seconds: float, *before: signal.Signals) -> None:
    """End the rank unless it ends by itself; SIGUSR1 before has its stack written, without Python's lock."""
    _signal(rank, *before)
    if not select.select([rank], [], [], seconds)[0]:
        _signal(rank, signal.SIGKILL)


def _signal(rank: int, *numbers: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        for number in numbers:
            signal.pidfd_send_signal(rank, number)


def _say(text: str) -> None:
    """Write a line where the rank writes its errors."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def main() -> None:
    """Watch the process with the number that is given, as standard input says."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(OSError, ValueError):  # the rank has ended meanwhile
        about = json.loads(sys.stdin.buffer.read())
        connection = connect(about["host"], about["port"], about["greeting"].encode("latin-1"))
        watch(int(sys.argv[1]), about["title"], connection)


if __name__ == "__main__":
    main()

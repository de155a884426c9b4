"""A small process beside each rank, which notices that the rank was stopped: no thread of the rank itself can.

It looks at the state of its rank twice a second. Of one that stays stopped (SIGSTOP, or a job control that has lost
sight of it) it has the stack written and tells the control plane, whose news reach the sentries of all other ranks:
these have theirs written too, and every rank is ended by its own sentry, the stopped one first. A debugger's stop is
another state, and a machine that sleeps stops the sentry too, which counts its own looks and not the clock.

This file is also the program, which is started by its path. It imports little of the standard library, since it is
started as often as a rank is.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Sequence

LOOK_SECONDS = 0.5
STOPPED_LOOKS = 8
"""Of so many looks in a row a stopped rank was seen: of no more than 4.5 s."""
_ANSWER_SECONDS = 5.0  # which rank 0 has for telling the others, on a busy machine if it was stopped itself
_CAUSE_SECONDS = 0.5  # which the stopped rank has for its stack
_END_SECONDS = 1.0  # which the others have for theirs; launchers report the rank that ends first
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # a group is sent them for its rank

_STALLED = b'{"error":"stalled","message":"'
"""How such a message of the control plane begins; what follows a sentry has told, and nothing is quoted in it."""

_started: list[object] = []  # kept, or Python warns that they still run


def start_sentry(title: str, connection: int) -> int | None:
    """Start the sentry of this process, and do not wait for it; its number, or None where there can be none.

    Args:
        title: of this rank, such as ``rank 3 (node 1)``.
        connection: the descriptor of a socket to the control plane, on which the greeting is on its way.
    """
    import subprocess  # which the program does without

    if not hasattr(os, "pidfd_open") or not sys.executable:
        return None
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(connection), title]
    try:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[connection])
    except OSError:
        return None
    _started.append(started)
    return started.pid


def watch(pid: int, connection: int, title: str) -> None:
    """Watch the process until it ends; end it once it, or another rank, stands still."""
    rank, state = os.pidfd_open(pid), os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    status = os.open(f"/proc/{pid}/status", os.O_RDONLY)
    if os.getppid() != pid:  # it has ended meanwhile, and its number may be another's
        return
    sources = [rank, connection]
    received, looks, switches = b"", 0, b""
    while True:
        began = time.monotonic()
        ready = select.select(sources, [], [], LOOK_SECONDS)[0]
        if rank in ready:
            return
        if connection in ready:
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
        if looks:  # who is stopped and continued in turns is slow, and does not stand still
            before, switches = switches, count_switches(status)
            looks = looks if switches == before else 1
        if looks >= STOPPED_LOOKS:
            seconds = looks * LOOK_SECONDS
            told = f"{title} stands still: its process was stopped {seconds:.0f} s ago, and nobody has continued it."
            _say(f"distributed: {told} It is ended; where it stood:")
            # It goes on for a moment, in which the stack comes first: in rank 0 that moment is the control plane's.
            _signal(rank, signal.SIGUSR1, signal.SIGCONT)
            _tell(connection, told)
            select.select([rank, connection], [], [], _ANSWER_SECONDS)  # the others hear it when this sentry does
            _end(rank, _CAUSE_SECONDS)
            return


def is_stopped(state: int) -> bool:
    """Whether a process is stopped, and not by a debugger; ``state`` is its open /proc/PID/stat."""
    try:
        return os.pread(state, 4096, 0).rpartition(b")")[2].split()[0] == b"T"
    except ProcessLookupError:
        return False


def count_switches(status: int) -> bytes:
    """How often a process was taken from a processor, as its open /proc/PID/status says: never while it is stopped."""
    try:
        return os.pread(status, 1 << 14, 0).partition(b"\nvoluntary_ctxt_switches")[2]
    except ProcessLookupError:
        return b""


def stalled_news(received: bytes) -> str | None:
    """Which rank stands still, if one of the messages says so; they are those of ``wire.py``."""
    while len(received) >= 4:
        length = 4 + int.from_bytes(received[:4], "big")
        if len(received) >= length and received[4:].startswith(_STALLED):
            return received[4 + len(_STALLED) : length].partition(b'"')[0].decode()
        received = received[length:]
    return None


def _receive(connection: int) -> bytes:
    try:
        return os.read(connection, 1 << 16)
    except OSError:
        return b""


def _tell(connection: int, text: str) -> None:
    body = b'{"op":"stalled","message":"%b"}' % text.encode()
    with contextlib.suppress(OSError):  # rank 0 is gone: the others know that
        os.write(connection, len(body).to_bytes(4, "big") + body)


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


def main(arguments: Sequence[str]) -> None:
    """Watch the process with the number, with the connection and the title, that are given."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    pid, connection, title = arguments
    with contextlib.suppress(OSError):  # the rank has ended meanwhile
        watch(int(pid), int(connection), title)


if __name__ == "__main__":
    main(sys.argv[1:])

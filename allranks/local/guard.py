"""A tiny process beside the engine that ends a run's ranks when the engine cannot: after ``kill -9`` of the engine.

It is forked before the first rank starts, holds one end of a pipe, and learns from it which sessions are alive. The
pipe's end of file means that the engine is gone. The engine watches the guard in turn and replaces it when it dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from allranks.local import processes


class ProcessGuard:
    """The engine's side of the guard, whose ``pidfd`` becomes readable when it has died: then ``replace`` is called.

    ``finish`` is what the guard does last, for what is not ended by signals.
    """

    def __init__(self, marker: str, finish: Callable[[], None] = lambda: None) -> None:
        self._marker = marker.encode()
        self._finish = finish
        self._sessions: set[int] = set()
        self._start()

    def _start(self) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _watch(reader, self._marker, set(self._sessions), self._finish)
        os.close(reader)
        self._writer = writer
        self.pidfd = os.pidfd_open(self.pid)

    def add(self, session: int) -> None:
        """Tell the guard of a rank that has started."""
        self._sessions.add(session)
        self._tell(f"+{session}\n")

    def remove(self, session: int) -> None:
        """Tell the guard that a rank and its group are over, since the id may be given to somebody else."""
        self._sessions.discard(session)
        self._tell(f"-{session}\n")

    def replace(self) -> None:
        """Start a new guard in place of one that has died."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the guard: nothing is left to guard."""
        processes.kill([self.pid])  # before its pipe ends; one that was stopped (SIGSTOP) ends as well
        os.close(self._writer)
        os.close(self.pidfd)
        os.waitpid(self.pid, 0)

    def _tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has died; the engine sees its pidfd and replaces it
            os.write(self._writer, line.encode())


def _watch(reader: int, marker: bytes, sessions: set[int], finish: Callable[[], None]) -> None:
    """The guard's whole life; never returns."""
    os.setsid()  # Ctrl-C in the terminal is the engine's business
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(reader, 0)
    os.closerange(1, min(65536, os.sysconf("SC_OPEN_MAX")))
    rest = b""
    while block := os.read(0, 65536):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            (sessions.add if line[:1] == b"+" else sessions.discard)(int(line[1:]))
    processes.end_everything(marker, sessions)
    with contextlib.suppress(Exception):
        finish()
    os._exit(0)

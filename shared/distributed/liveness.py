"""How a rank shows that it lives, and how it ends when what it waits for is gone.

What moves is counted in a page of memory that the rank's sentry sees, so that neither has to ask the other. A rank that
has made its first steps is expected to move on: to finish a step, or a pass of a validation, or to read or write a
piece of a file. What takes long by itself, such as the compilation in front of a first validation, is announced.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from shared.distributed import sentry
from shared.distributed.control import Control
from shared.distributed.errors import print_line

STUCK_SECONDS = 15.0
"""So long may the main thread stand still after another rank has gone; a collective that notices takes a second."""
_LOOK_SECONDS = 1.0
_STILL_SHARE = 0.05
"""Of one processor: what uses less of it stands still."""
_FIRST_STEPS: Final = 3
"""Frameworks compile in the first step, and some again in the second, when they have seen another shape."""
SHORTEST_SILENCE = 10.0
"""Seconds that are no hang, however short the time-outs: a busy machine has such."""

_moves: memoryview | None = None
"""The page that the sentry sees: what has moved, the steps among that, and the milliseconds that may pass without."""
_longest_ms = 0
_started: list[object] = []  # kept, or Python warns that they still run


def note_progress() -> None:
    """Show that something moves, such as a batch that has come; any thread, and at about a tenth of a microsecond."""
    if _moves is not None:
        _moves[sentry.MOVES] += 1


def note_step() -> None:
    """Show that a step is finished, or a pass of a validation; after the first steps the next one is waited for."""
    if _moves is not None:
        _moves[sentry.MOVES] += 1
        _moves[sentry.STEPS] += 1
        # In a debugger a person decides how long a step takes.
        if _moves[sentry.STEPS] >= _FIRST_STEPS and sys.gettrace() is None and "pydevd" not in sys.modules:
            _moves[sentry.LIMIT] = _longest_ms


def expect_silence() -> None:
    """Announce what may take long without a sign of life; up to the next step nobody waits for one."""
    if _moves is not None:
        _moves[sentry.LIMIT] = 0


@contextmanager
def silence_expected() -> Iterator[None]:
    """Wait for no sign of life inside, and from its end on as before."""
    limit = 0 if _moves is None else _moves[sentry.LIMIT]
    expect_silence()
    try:
        yield
    finally:
        if _moves is not None:
            _moves[sentry.MOVES] += 1
            _moves[sentry.LIMIT] = limit


def limit_silence(step_timeout: float) -> None:
    """Say how long the waits of this world are, in seconds: a rank may be silent for half of that, 10 s at least."""
    global _longest_ms  # noqa: PLW0603  (a process is one rank)
    _longest_ms = int(1e3 * max(SHORTEST_SILENCE, step_timeout / 2))
    if _moves is not None:
        _moves[sentry.LONGEST] = _longest_ms


@dataclass(frozen=True, slots=True)
class SentryLink:
    """A sentry that was started: its process, and the page that it sees."""

    pid: int
    page: memoryview

    def release(self) -> None:
        """Let it go: the world has ended, and what this process does from now on is its own."""
        self.page[sentry.LIMIT] = self.page[sentry.LONGEST] = 0


def start_sentry(title: str, connection: socket.socket | None = None) -> SentryLink | None:
    """Start the sentry of this process, and do not wait for it; None where there can be none.

    Args:
        title: of this rank, such as ``rank 3 (node 1)``.
        connection: to the control plane, on which the greeting is on its way; None of a rank that is the only one.
    """
    global _moves  # noqa: PLW0603  (a process is one rank)
    if not hasattr(os, "pidfd_open") or not sys.executable:
        return None
    page, stacks = os.memfd_create("progress"), os.memfd_create("stacks")
    try:
        os.ftruncate(page, mmap.PAGESIZE)
        for number, all_threads in ((sentry.STACK_SIGNAL, False), (sentry.ALL_STACKS_SIGNAL, True)):
            faulthandler.unregister(number)  # of an earlier world
            # Python's end puts back what was before: the default would end a rank that is asked in its last moment.
            with suppress(ValueError):  # not in the main thread
                signal.signal(number, signal.SIG_IGN)
            faulthandler.register(number, file=stacks, all_threads=all_threads)
        passed = [page, stacks] if connection is None else [connection.fileno(), page, stacks]
        control = sentry.ALONE if connection is None else connection.fileno()
        numbers = map(str, (os.getpid(), control, page, stacks))
        command = [sys.executable, "-I", "-S", sentry.__file__, *numbers]
        main_thread = f"{threading.main_thread().ident or 0:016x}"
        started = subprocess.Popen(
            [*command, main_thread, title], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=passed
        )
        _moves = memoryview(mmap.mmap(page, mmap.PAGESIZE)).cast("Q")
        _moves[sentry.LONGEST] = max(1, _longest_ms)
    except (OSError, RuntimeError, ValueError):
        return None
    finally:
        os.close(page)  # the stacks' stays open: faulthandler writes to its number
    _started.append(started)
    return SentryLink(started.pid, _moves)


class LostPeerWatch(threading.Thread):
    """Looks once a second whether the world has broken, and ends a process that then stands still.

    A collective of gloo does not always return when its peer dies: of 700 pairs of processes of which one was killed
    between two collectives, 3 survivors waited on (torch 2.13, Linux), until the collective's own time-out, which is
    minutes. The control plane knows of the death at once; what is missing is somebody who acts upon it while the main
    thread stands in native code.

    A rank whose main thread computes goes on until it meets the others. One that waits for a slow disk is ended like
    one that waits in a collective: the job has failed, and what it leaves is what a kill leaves at any moment.

    Once the rank leaves the world, it also lets go its sentry.
    """

    def __init__(self, control: Control, link: SentryLink | None) -> None:
        super().__init__(name="allranks-lost-peers", daemon=True)
        self._control, self._link = control, link
        self._clock = time.pthread_getcpuclockid(threading.main_thread().ident or 0)

    def run(self) -> None:
        """Watch until the rank ends by itself."""
        still = used = 0.0
        while not self._control.is_ending.wait(_LOOK_SECONDS):
            news = self._control.bad_news()
            if news is None:
                continue
            used, before = time.clock_gettime(self._clock), used
            still = still + _LOOK_SECONDS if used - before < _STILL_SHARE * _LOOK_SECONDS else 0.0
            if still >= STUCK_SECONDS:
                self._end(news)
        if self._link is not None:
            self._link.release()

    def _end(self, news: str) -> None:
        print_line(
            f"distributed: {news} This rank has stood still for {STUCK_SECONDS:.0f} s since, waiting for what never "
            "comes, and is ended; where it stood:"
        )
        faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        os._exit(1)

"""Send this rank's heartbeat to rank 0 once a second, and end the rank if it or another rank hangs.

One thread does both. faulthandler's watchdog, a C thread, is the backstop for code that holds Python's lock. After its
first steps a rank must make progress: finish a step or a validation pass, or read or write part of a file. Callers
announce work that takes long without progress, such as the compilation before a first validation.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, cast

from shared.distributed.control import Control, SocketControl
from shared.distributed.errors import ControlError, Refusal, print_line
from shared.distributed.hang import MISSING_SECONDS, WHY_MISSING, pause_limit, silence_words

STUCK_SECONDS = 15.0
"""Seconds without progress, after another rank has died, that end this rank. Collectives usually fail in a second."""
SHORTEST_SILENCE = 10.0
"""Minimum seconds without progress that count as a hang, for busy machines with short timeouts."""
_LOOK_SECONDS: Final = 1.0
_RANKS_A_SECOND: Final = 256
"""Maximum heartbeats that rank 0 receives in a second."""
_WATCHDOG_FACTOR, _PAUSE_FACTOR = 1.5, 2.0
"""The watchdog's timeout as a multiple of the longest silence: in a step, and in a pause, as collectives of others."""
_FIRST_STEPS: Final = 3
"""Frameworks compile in the first step, and some again in the second, for another shape."""
_CAUSE_SECONDS, _OTHERS_SECONDS = 0.5, 2.0
"""Delay before a rank exits: launchers report the rank that exits first, which should be the cause."""
_DEBUGGERS: Final = ("/pdb.py", "/bdb.py")


@dataclass(slots=True)
class _Progress:
    """Progress counters, and the seconds allowed without progress: `limit` now (0: any), `longest` in a step."""

    moves: int = 0
    steps: int = 0
    limit: float = 0.0
    longest: float = SHORTEST_SILENCE
    heartbeat: Heartbeat | None = None


_progress = _Progress()
_watchdog = threading.RLock()


def note_progress() -> None:
    """Count progress, such as a batch that was read. Any thread may call this; it takes about 0.1 µs."""
    _progress.moves += 1


def note_step() -> None:
    """Count a finished step or validation pass. After the first steps, the next one has a timeout."""
    _progress.moves += 1
    _progress.steps += 1
    # A step has no timeout in a debugger.
    if _progress.steps >= _FIRST_STEPS and sys.gettrace() is None and "pydevd" not in sys.modules:
        _allow(_progress.longest)


def expect_silence() -> None:
    """Announce work without progress: there is no timeout until the next step."""
    _allow(0.0)


@contextmanager
def silence_expected() -> Iterator[None]:
    """Suspend the timeout inside the block, and restore it afterwards."""
    limit = _progress.limit
    expect_silence()
    try:
        yield
    finally:
        _allow(limit)


def limit_silence(step_timeout: float) -> None:
    """Set the timeout of a step: half of `step_timeout` without progress, at least 10 s."""
    _progress.longest = max(SHORTEST_SILENCE, step_timeout / 2)


def _allow(limit: float) -> None:
    """Set the allowed silence, and report to rank 0 at once that a step or a pause begins."""
    if limit != _progress.limit:
        _progress.limit = limit
        _progress.moves += 1
        if (heartbeat := _progress.heartbeat) is not None:
            _wind()
            heartbeat.beat(time.monotonic())


def _wind(*, is_over: bool = False) -> None:
    """Restart faulthandler's timeout; cancel it before the first steps and at the end."""
    with _watchdog, suppress(OSError, RuntimeError, ValueError):  # stderr may be closed, or be no file
        heartbeat = _progress.heartbeat
        if heartbeat is not None and (is_over or not (heartbeat.news or _progress.steps >= _FIRST_STEPS)):
            faulthandler.cancel_dump_traceback_later()
        elif heartbeat is not None:
            factor = _WATCHDOG_FACTOR if heartbeat.news or _progress.limit else _PAUSE_FACTOR
            faulthandler.dump_traceback_later(factor * _progress.longest, exit=True, file=sys.__stderr__ or 2)


def _before_fork() -> None:
    """Cancel faulthandler's timeout: at its exit a child would join the watchdog thread, which it does not have."""
    _watchdog.acquire()
    _wind(is_over=True)


def _after_fork() -> None:
    _wind()
    _watchdog.release()


def _after_fork_in_child() -> None:
    _progress.heartbeat = None
    _watchdog.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class Heartbeat(threading.Thread):
    """The thread that sends this rank's heartbeat, and ends the rank if it hangs.

    A gloo collective does not always return when its peer dies: after 700 kills between two collectives, 3 survivors
    blocked until the collective's timeout of minutes (torch 2.13, Linux). A rank without progress after another rank
    has died is therefore ended.

    Args:
        control: control plane of this rank; the thread ends when the rank leaves the world.
        title: title of this rank, such as ``rank 3 (node 1)``.
        channel: name of a second connection to rank 0; empty in a world of one rank.
        ranks: number of ranks, parameter servers included.

    Attributes:
        news: the failure that ended the world; empty before one.
    """

    def __init__(self, control: Control, title: str, channel: str, ranks: int) -> None:
        super().__init__(name="allranks-heartbeat", daemon=True)
        self._control, self._title, self._channel_name = control, title, channel
        self._interval = max(_LOOK_SECONDS, ranks / _RANKS_A_SECOND)
        self._channel: SocketControl | None = None
        self._main = threading.main_thread().ident or 0
        _progress.moves = _progress.steps = 0
        _progress.limit = 0.0
        self._moves, self._moved_at = 0, time.monotonic()
        self._sent_at = self._moved_at
        self._is_unanswered = self._has_warned = False
        self.news = ""

    def start(self) -> None:
        """Connect to rank 0, and start the thread. Without a connection, the thread watches this rank alone."""
        with suppress(ControlError, Refusal):
            channel = self._control.open_channel(self._channel_name) if self._channel_name else None
            self._channel = cast("SocketControl | None", channel)
        _progress.heartbeat = self
        super().start()

    def run(self) -> None:
        """Watch until the rank leaves."""
        try:
            while not self._control.is_ending.is_set():
                self.look(time.monotonic())
                if self._channel is None or self.news:
                    self._control.is_ending.wait(_LOOK_SECONDS)
                else:
                    self._channel.wait(_LOOK_SECONDS)
        finally:
            with _watchdog:
                _wind(is_over=True)
                _progress.heartbeat = None
            if self._channel is not None:
                self._channel.close_sockets()

    def look(self, now: float) -> None:
        """Check messages and timeouts at this time of the monotonic clock, in seconds."""
        self._receive(now)
        _wind(is_over=self._is_debugged())
        silent = self._silence(now)
        if self.news and silent >= STUCK_SECONDS:
            waited = f"This rank has stood still for {STUCK_SECONDS:.0f} s since, waiting for what never comes"
            self._end(f"{self.news} {waited}, and is ended; where it stood:")
        elif self._channel is None and silent >= _progress.limit > 0:  # rank 0 does not watch this rank
            self._end_for(f"{self._title} makes no progress: {silence_words(silent, self._place())}.")
        elif self._is_unanswered and now - self._sent_at > MISSING_SECONDS:
            words = f"it has not answered for {now - self._sent_at:.0f} s"
            if _progress.limit and silent >= pause_limit(_progress.longest):
                self._end_for(f"rank 0 (node 0) makes no progress: {words}.")
            elif _progress.steps and not self._has_warned:
                self._has_warned = True
                print_line(f"distributed: rank 0 (node 0): {words} ({WHY_MISSING})")
        elif not self._is_unanswered and now - self._sent_at >= self._interval:
            self.beat(now)

    def beat(self, now: float) -> None:
        """Send a heartbeat. The main thread also calls this when it enters or leaves a pause."""
        if self._channel is None or self.news:
            return
        self._sent_at, self._is_unanswered = now, True
        limit = 0.0 if self._is_debugged() else _progress.limit
        limits = {"limit": limit, "longest": _progress.longest}
        state = {"silent": self._silence(now), "steps": _progress.steps, "place": self._place(), **limits}
        self._channel.post({"op": "beat", "state": state})

    def _silence(self, now: float) -> float:
        """Return the seconds without progress; 0 in a debugger."""
        if _progress.moves != self._moves or self._is_debugged():
            self._moves, self._moved_at = _progress.moves, now
        return now - self._moved_at

    def _receive(self, now: float) -> None:
        for message in self._channel.received() if self._channel is not None and not self.news else ():
            self._is_unanswered = self._has_warned = False
            if "error" in message:
                self.news, self._moved_at = str(message["message"]), now
                if message["error"] == "stalled":
                    self._end_for(self.news)
                return

    def _place(self) -> str:
        """Return the innermost call of the main thread, such as ``/code/train.py:33 (loss)``."""
        frame = sys._current_frames().get(self._main)  # noqa: SLF001  (documented, in spite of its name)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"

    def _is_debugged(self) -> bool:
        """Return whether the main thread is in Python's debugger (pdb, ipdb, pytest's)."""
        frame = sys._current_frames().get(self._main) if "bdb" in sys.modules else None  # noqa: SLF001
        while frame is not None and not frame.f_code.co_filename.endswith(_DEBUGGERS):
            frame = frame.f_back
        return frame is not None

    def _end_for(self, news: str) -> None:
        """End this rank because of a hang, its own or another rank's."""
        is_cause = news.startswith(f"{self._title} ")
        ended = "It is ended" if is_cause else "This rank is ended with it"
        self._end(f"{news} {ended}; where it stood:", _CAUSE_SECONDS if is_cause else _OTHERS_SECONDS)

    def _end(self, text: str, seconds: float = 0.0) -> None:
        """Write the reason and all stacks, and end this process after some seconds."""
        print_line(f"distributed: {text}")
        with suppress(OSError, RuntimeError, ValueError):
            faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        time.sleep(seconds)
        os._exit(1)

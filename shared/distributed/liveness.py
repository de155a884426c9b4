"""Report this rank's progress to rank 0 once a second, and end the rank when it, or one that it waits for, hangs.

One thread does both. faulthandler's watchdog, a thread of C, is the backstop for code that keeps Python's lock. A rank
that has made its first steps is expected to move on: to finish a step, or a pass of a validation, or to read or write a
piece of a file. What takes long by itself, such as the compilation in front of a first validation, is announced.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from shared.distributed.control import Control, SocketControl
from shared.distributed.errors import ControlError, Refusal, print_line
from shared.distributed.hang import MISSING_SECONDS, pause_limit, silence_words

STUCK_SECONDS = 15.0
"""So long may nothing move after another rank has gone; a collective that notices takes a second."""
SHORTEST_SILENCE = 10.0
"""Seconds that are no hang, however short the time-outs: a busy machine has such."""
STOPPED_LOOKS: Final = 5
"""A process that is seen stopped so often in a row, once a second, is ended."""
_LOOK_SECONDS: Final = 1.0
_RANKS_A_SECOND: Final = 256
"""Heartbeats that rank 0 receives at most in a second."""
_WATCHDOG_FACTOR: Final = 1.5
"""Of the longest silence, in which the heartbeat thread has not run: native code keeps Python's lock."""
_PAUSE_FACTOR: Final = 2.0
"""In a pause: as long as collectives of other ranks wait."""
_FIRST_STEPS: Final = 3
"""Frameworks compile in the first step, and some again in the second, when they have seen another shape."""
_CAUSE_SECONDS, _OTHERS_SECONDS = 0.5, 2.0
"""Until a rank ends: launchers report the one that ends first, and rank 0 tells the others meanwhile."""
_DEBUGGERS: Final = ("/pdb.py", "/bdb.py")


@dataclass(slots=True)
class _Progress:
    """What this process has done, and the seconds that may pass without: `limit` now (0: any), `longest` in a step."""

    moves: int = 0
    steps: int = 0
    limit: float = 0.0
    longest: float = SHORTEST_SILENCE
    heartbeat: Heartbeat | None = None


_progress = _Progress()
_watchdog = threading.RLock()


def note_progress() -> None:
    """Show that something moves, such as a batch that has come; any thread, and at about a tenth of a microsecond."""
    _progress.moves += 1


def note_step() -> None:
    """Show that a step is finished, or a pass of a validation; after the first steps the next one is waited for."""
    _progress.moves += 1
    _progress.steps += 1
    # In a debugger a person decides how long a step takes.
    if _progress.steps >= _FIRST_STEPS and sys.gettrace() is None and "pydevd" not in sys.modules:
        _allow(_progress.longest)


def expect_silence() -> None:
    """Announce what may take long without a sign of life; up to the next step nobody waits for one."""
    _allow(0.0)


@contextmanager
def silence_expected() -> Iterator[None]:
    """Wait for no sign of life inside, and from its end on as before."""
    limit = _progress.limit
    expect_silence()
    try:
        yield
    finally:
        _allow(limit)


def limit_silence(step_timeout: float) -> None:
    """Set how long the waits of this world are, in seconds: a rank may be silent for half of that, 10 s at least."""
    _progress.longest = max(SHORTEST_SILENCE, step_timeout / 2)


def _allow(limit: float) -> None:
    """Set the silence that is allowed from now on; rank 0 hears at once when a step begins or a pause."""
    if limit != _progress.limit:
        _progress.limit = limit
        _progress.moves += 1
        if (heartbeat := _progress.heartbeat) is not None:
            _wind()
            heartbeat.beat(time.monotonic())


def _wind(*, is_over: bool = False) -> None:
    """Have the watchdog count anew, or stop it before the first steps and once all is over."""
    with _watchdog, suppress(OSError, RuntimeError, ValueError):  # stderr may be closed, or be no file
        heartbeat = _progress.heartbeat
        if heartbeat is None or is_over or not (heartbeat.news or _progress.steps >= _FIRST_STEPS):
            faulthandler.cancel_dump_traceback_later()
            return
        factor = _WATCHDOG_FACTOR if heartbeat.news or _progress.limit else _PAUSE_FACTOR
        faulthandler.dump_traceback_later(factor * _progress.longest, exit=True, file=sys.__stderr__ or 2)


def _before_fork() -> None:
    """Stop the watchdog: at the end of a child, Python would wait for its thread, which the child does not have."""
    _watchdog.acquire()
    if _progress.heartbeat is not None:
        _wind(is_over=True)


def _after_fork() -> None:
    if _progress.heartbeat is not None:
        _wind()
    _watchdog.release()


def _after_fork_in_child() -> None:
    _progress.heartbeat = None
    _watchdog.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class StoppedPeers:
    """Finds a process that stays stopped (SIGSTOP), of those with these titles and numbers."""

    def __init__(self, peers: Iterable[tuple[str, int]]) -> None:
        self._files: dict[tuple[str, int], int] = {}
        self._looks: dict[tuple[str, int], tuple[int, bytes]] = {}
        for title, pid in peers:
            with suppress(OSError):  # an open file is never that of a later process with the same number
                self._files[title, pid] = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)

    def find(self) -> tuple[str, int] | None:
        """Return the title and the number of a process that was stopped at each of the last looks, or None."""
        for peer, file in self._files.items():
            status = b""
            with suppress(ProcessLookupError):
                status = os.pread(file, 1 << 14, 0)
            count, before = self._looks.get(peer, (0, b""))
            switches = status.partition(b"\nvoluntary_ctxt_switches")[2]
            # A process that is stopped and continued in turns is slow; each time it is taken from a processor.
            count = 0 if b"\nState:\tT" not in status else count + 1 if switches == before else 1
            self._looks[peer] = (count, switches)
            if count >= STOPPED_LOOKS:
                return peer
        return None

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])


class Heartbeat(threading.Thread):
    """The thread that watches this rank, reports it, and ends it.

    A collective of gloo does not always return when its peer dies: of 700 pairs of processes of which one was killed
    between two collectives, 3 survivors waited on (torch 2.13, Linux), until the collective's own time-out, which is
    minutes. So a rank in which nothing moves for long after another rank has gone is ended.

    Args:
        control: that of this rank; the thread ends once the rank leaves the world.
        title: of this rank, such as ``rank 3 (node 1)``.
        channel: name of the further connection to rank 0; empty for a rank that is the only one.
        ranks: number of all ranks, and parameter servers.

    Attributes:
        news: what has broken the world; empty while nothing has.
    """

    def __init__(self, control: Control, title: str, channel: str, ranks: int) -> None:
        super().__init__(name="allranks-heartbeat", daemon=True)
        self._control, self._title, self._channel_name = control, title, channel
        self._interval = max(_LOOK_SECONDS, ranks / _RANKS_A_SECOND)
        self._channel: SocketControl | None = None
        self._peers = StoppedPeers(())
        self._main = threading.main_thread().ident or 0
        _progress.moves = _progress.steps = 0
        _progress.limit = 0.0
        self._moves, self._moved_at = 0, time.monotonic()
        self._sent_at, self._unanswered = self._moved_at, 0
        self._counting = threading.Lock()  # the main thread sends heartbeats too
        self.news = ""

    def run(self) -> None:
        """Watch until the rank leaves."""
        _progress.heartbeat = self
        try:
            self._open_channel()
            while not self._control.is_ending.is_set():
                self.look(time.monotonic())
                if self._channel is None or self.news:
                    self._control.is_ending.wait(_LOOK_SECONDS)
                else:
                    self._channel.wait(_LOOK_SECONDS)
        finally:
            _progress.heartbeat = None
            _wind(is_over=True)
            self._peers.close()
            if self._channel is not None:
                self._channel.close_sockets()

    def _open_channel(self) -> None:
        """Connect to rank 0, which may be gone, or in a call that keeps Python's lock for long."""
        while self._channel_name and not (self._channel or self.news or self._control.is_ending.is_set()):
            try:
                channel = self._control.open_channel(self._channel_name)
                assert isinstance(channel, SocketControl)  # noqa: S101
                self._peers = StoppedPeers(channel.peers())
                self._channel = channel
            except (ControlError, Refusal):
                self.news = self._control.bad_news() or ""
                self._moved_at = time.monotonic()
                self._control.is_ending.wait(_LOOK_SECONDS)

    def look(self, now: float) -> None:
        """Do what is due at this time of the monotonic clock, in seconds."""
        if (peer := self._peers.find()) is not None:
            self._end_stopped(*peer)
        self._receive(now)
        _wind(is_over=self._is_debugged())
        silent = self._silence(now)
        if self.news and silent >= STUCK_SECONDS:
            waited = f"This rank has stood still for {STUCK_SECONDS:.0f} s since, waiting for what never comes"
            self._end(f"{self.news} {waited}, and is ended; where it stood:")
        elif self._channel is None and silent >= _progress.limit > 0:  # nobody else would end it
            self._end_for(f"{self._title} makes no progress: {silence_words(silent, self._place())}.")
        elif self._unanswered and now - self._sent_at > MISSING_SECONDS:
            if _progress.limit and silent >= pause_limit(_progress.longest):
                self._end_for(
                    f"rank 0 (node 0) makes no progress: it has not answered for {now - self._sent_at:.0f} s."
                )
        elif not self._unanswered and now - self._sent_at >= self._interval:
            self.beat(now)

    def beat(self, now: float) -> None:
        """Send a heartbeat; the main thread does so too, where it enters or leaves a pause."""
        if self._channel is None or self.news:
            return
        with self._counting:
            self._sent_at = now
            self._unanswered += 1
        limits = {"in_step": _progress.limit > 0, "limit": _progress.longest, "debugged": self._is_debugged()}
        state = {"silent": self._silence(now), "steps": _progress.steps, "place": self._place()}
        self._channel.post({"op": "beat", **state, **limits})

    def _silence(self, now: float) -> float:
        """Seconds without progress, as far as it was looked at; none in a debugger."""
        if _progress.moves != self._moves or self._is_debugged():
            self._moves, self._moved_at = _progress.moves, now
        return now - self._moved_at

    def _receive(self, now: float) -> None:
        for message in self._channel.received() if self._channel is not None and not self.news else ():
            with self._counting:
                self._unanswered = 0 if "error" in message else self._unanswered - 1
            if "error" not in message:
                continue
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
        """Whether the main thread is in Python's debugger; ipdb and pytest's debugger are pdb too."""
        frame = sys._current_frames().get(self._main) if "bdb" in sys.modules else None  # noqa: SLF001
        while frame is not None and not frame.f_code.co_filename.endswith(_DEBUGGERS):
            frame = frame.f_back
        return frame is not None

    def _end_stopped(self, title: str, pid: int) -> None:
        """Tell all ranks, and let the process run on for a moment, in which it hears of it and writes its stacks."""
        seconds = (STOPPED_LOOKS - 1) * _LOOK_SECONDS
        news = f"{title} stands still: its process was stopped {seconds:.0f} s ago, and nobody has continued it."
        if self._channel is not None:
            self._channel.post({"op": "stopped", "message": news})
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)
        self._end_for(news, pid)

    def _end_for(self, news: str, stopped: int = 0) -> None:
        """End this rank for a hang, which may be its own."""
        is_cause = news.startswith(f"{self._title} ")
        ended = "It is ended" if is_cause else "This rank is ended with it"
        self._end(f"{news} {ended}; where it stood:", _CAUSE_SECONDS if is_cause else _OTHERS_SECONDS, stopped)

    def _end(self, text: str, seconds: float = 0.0, stopped: int = 0) -> None:
        """Write why and all stacks, and end this process, and the stopped one unless it has ended by itself."""
        print_line(f"distributed: {text}")
        with suppress(OSError, RuntimeError, ValueError):
            faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)
        time.sleep(seconds)
        if stopped:
            with suppress(OSError):
                os.kill(stopped, signal.SIGKILL)
        os._exit(1)

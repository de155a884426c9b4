"""A small process beside each rank, which notices what no thread of the rank can: that it was stopped, or hangs.

It looks at its rank twice a second. Of one that stays stopped (SIGSTOP, or a job control that has lost sight of it) it
tells the control plane. Of one that hangs, nothing moves for as long as was agreed; since those that wait for it are
silent too, the control plane then asks all sentries where their ranks stand, and names the one that holds up the
others. Its news reach all sentries, which write down where their ranks stood, Python's stacks and, where py-spy is
installed, native ones, and end them, the cause first. A debugger's stop is none, and a machine that sleeps stops the
sentry too, which counts its own looks and not the clock.

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

ALONE = -1
"""In the place of a connection to the control plane: the rank is the only one, and nobody else would miss it."""
LOOK_SECONDS = 0.5
STOPPED_LOOKS = 8
"""Of so many looks in a row a stopped rank was seen: of no more than 4.5 s."""
MOVES, STEPS, LIMIT, LONGEST = range(4)
"""Numbers of 8 bytes in the page: what has moved, the steps among that, the milliseconds that may pass without, 0 for
any, and the most that may pass once the others have ended: 0 when the rank itself has left."""
STACK_SIGNAL, ALL_STACKS_SIGNAL = signal.SIGRTMAX - 1, signal.SIGRTMAX - 2
"""At which the rank writes the stack of its main thread into the file of the sentry, or of all threads; no library was
seen to use these. Where other threads run Python meanwhile, the second crashes the rank one time in some hundred, so it
is for one that is ended; the first does where the main thread runs Python itself, one time in some 20,000."""
_ANSWER_SECONDS = 5.0  # which rank 0 has for telling the others, on a busy machine if it was stopped itself
_CAUSE_SECONDS = 0.5  # which the cause has for its stack
_END_SECONDS = 1.0  # which the others have for theirs; launchers report the rank that ends first
_STACK_SECONDS = 0.2
_NATIVE_SECONDS = 3.0  # which py-spy has
_WATCHED_SECONDS = 1.0  # in which it is seen whether a rank moves, and whether it computes
_EARLIER_SECONDS = 5.0
"""Before the waits of the others end, so that they hear which rank it is: those of gloo name none."""
_DEBUGGERS = ('/pdb.py"', '/bdb.py"', "pydevd", "/debugpy/")
"""What stands in the stack of a main thread that a person has stopped; ipdb and pytest's debugger are pdb too."""
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")  # a group is sent them for its rank

_STALLED = b'{"error":"stalled","message":"'
"""How such a message of the control plane begins; what follows a sentry has told, and nothing is quoted in it."""
_ASKED, _ERROR = b'{"ask":', b'{"error":'


def is_stopped(state: int) -> bool:
    """Whether a process is stopped, and not by a debugger; ``state`` is its open /proc/PID/stat."""
    try:
        return os.pread(state, 4096, 0).rpartition(b")")[2].split()[0] == b"T"
    except ProcessLookupError:
        return False


class News:
    """What the control plane sends, cut into its messages, which are those of ``wire.py``."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add what was received, and give each message that is whole."""
        self._received += data
        whole = []
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            whole.append(self._received[4:end])
            self._received = self._received[end:]
        return whole


def stalled_news(message: bytes) -> str | None:
    """Which rank stands still, if the message says so."""
    return message[len(_STALLED) :].partition(b'"')[0].decode() if message.startswith(_STALLED) else None


def main_stack(stacks: str, main_thread: str) -> list[str]:
    """The lines of the main thread in what faulthandler has written, the innermost call first."""
    alone, named = stacks.startswith("Stack "), f"0x{main_thread} "
    block = (stacks if alone else stacks.partition(named)[2]).partition("\n\n")[0]
    return [line for line in block.splitlines() if line.startswith('  File "')]


def place_of(stacks: str, main_thread: str) -> str:
    """Where the main thread stands by what faulthandler has written, such as ``/code/train.py:33 (loss)``; or empty."""
    line = next(iter(main_stack(stacks, main_thread)), "")
    path, _, rest = line.removeprefix('  File "').partition('", line ')
    number, _, function = rest.partition(" in ")
    return f"{path}:{number} ({function})" if number else ""


class Sentry:
    """Watches one rank.

    Args:
        pid: its process.
        connection: descriptor of a socket to the control plane, or ``ALONE``.
        page, stacks: those of the two files that the rank writes.
        main_thread: that of the rank, in hexadecimal digits, as faulthandler has it.
        title: such as ``rank 3 (node 1)``.
    """

    def __init__(self, pid: int, connection: int, page: int, stacks: int, main_thread: str, title: str) -> None:
        self._rank = os.pidfd_open(pid)
        self._pid, self._title, self._main_thread = pid, title, main_thread
        self._is_rank_0 = title.startswith("rank 0 ")
        self._connection, self._page, self._stacks = connection, page, stacks
        self._state = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        self._sources = [self._rank] if connection == ALONE else [self._rank, connection]
        self._news = News()
        self._moves = self._silent = self._still = self._stopped = self._paused = 0
        self._alarmed_at: float | None = None
        self._is_broken = self._is_over = False
        self._written = self._switches = b""

    def watch(self) -> None:
        """Watch until the rank ends; end it once it, or another one, is found to stand still."""
        if os.getppid() != self._pid:  # it has ended meanwhile, and its number may be another's
            return
        while not self._is_over:
            began = time.monotonic()
            ready = select.select(self._sources, [], [], LOOK_SECONDS)[0]
            if self._rank in ready:
                return
            if self._connection in ready:
                self._listen()
            elif time.monotonic() - began > 4 * LOOK_SECONDS:  # the machine was asleep
                self._stopped = self._silent = self._still = 0
            else:
                self._look()

    def _look(self) -> None:
        self._stopped = self._stopped + 1 if is_stopped(self._state) else 0
        if self._stopped:  # who is stopped and continued in turns is slow, and does not stand still
            before, self._switches = self._switches, self._count_switches()
            self._stopped = self._stopped if self._switches == before else 1
        if self._stopped >= STOPPED_LOOKS:
            self._end_stopped()
            return
        moves, steps, limit, longest = self._read_page()
        self._is_over = longest == 0  # the rank has left the world
        limit = longest if self._is_broken else limit
        self._still = self._still + 1 if moves == self._moves and not self._stopped else 0
        self._silent = self._silent + 1 if self._still and limit else 0
        self._paused = self._paused if self._still and not limit else 0
        self._moves = moves
        if self._alarmed_at is not None:
            self._wait_for_answer(longest)
        elif limit and 1e3 * LOOK_SECONDS * self._silent >= limit:
            self._raise_alarm()
        elif steps and not limit and self._connection != ALONE:
            self._look_at_pause(longest)

    def _look_at_pause(self, longest: int) -> None:
        """Have found out, once, whether anybody waits for an announced silence to end, before that one gives up.

        Rank 0 asks earlier too, since nobody hears of those that wait while it keeps Python's lock.
        """
        due = pause_looks(longest)
        own = longest // int(1e3 * LOOK_SECONDS)
        if self._still >= due > self._paused or (self._is_rank_0 and self._still >= own > self._paused):
            self._paused = self._still
            self._raise_alarm()

    def _count_switches(self) -> bytes:
        """How often it was taken from a processor: never while it is stopped."""
        return _read(f"/proc/{self._pid}/status").partition(b"\nvoluntary_ctxt_switches")[2]

    def _read_page(self) -> list[int]:
        page = os.pread(self._page, 32, 0)
        return [int.from_bytes(page[start : start + 8], sys.byteorder) for start in range(0, 32, 8)]

    def _raise_alarm(self) -> None:
        """Have the control plane find out who holds up the others, while there are any."""
        if self._is_traced():
            self._silent = self._still = self._paused = 0
        elif self._is_broken or self._connection == ALONE:
            self._end_silent()
        elif self._tell(b'{"op":"silent"}'):
            self._alarmed_at = time.monotonic()

    def _wait_for_answer(self, longest: int) -> None:
        """Rank 0 that does not answer its own sentry keeps Python's lock: then it is the one that hangs."""
        late = time.monotonic() - (self._alarmed_at or 0.0) > _ANSWER_SECONDS / 2
        if not self._still:
            self._alarmed_at = None
        elif self._is_rank_0 and late and (self._silent or self._still >= pause_looks(longest)):
            self._end_silent()

    def _is_traced(self) -> bool:
        """Whether a debugger holds it."""
        status = _read(f"/proc/{self._pid}/status").splitlines()
        return any(line.startswith(b"TracerPid:") and line.split()[1] != b"0" for line in status)

    def _is_debugged(self) -> bool:
        """Whether the main thread stood in Python's debugger, or one like it, when its stacks were written last."""
        lines = main_stack(self._written.decode(errors="replace"), self._main_thread)
        return any(mark in line for line in lines for mark in _DEBUGGERS)

    def _listen(self) -> None:
        try:
            data = os.read(self._connection, 1 << 16)
        except OSError:
            data = b""
        if not data:
            self._sources.remove(self._connection)
            self._is_broken = True
            if self._alarmed_at is not None:
                self._end_with("rank 0 (node 0) makes no progress: it has not answered, and is gone.")
        for message in self._news.feed(data):
            news = stalled_news(message)
            if news is not None:
                self._end_with(news)
                return
            self._is_broken |= message.startswith(_ERROR)
            if message.startswith(_ASKED):
                self._say_where()

    def _say_where(self) -> None:
        """Answer what tells the control plane who holds up the others; see ``meeting.RollCall``."""
        import json  # most sentries never need it

        moves, steps, limit, _ = self._read_page()
        used = self._used_seconds()
        select.select([self._rank], [], [], _WATCHED_SECONDS)
        busy = (self._used_seconds() - used) / _WATCHED_SECONDS
        moved, _, _, longest = self._read_page()
        if longest == 0:  # the rank has left the world meanwhile, and is not asked any more
            self._is_over = True
            return
        moving = moved != moves
        place = "" if moving else self._dump_stacks()
        overdue = not limit and 0 < pause_looks(longest) <= self._still
        answer = {
            "op": "where",
            "moving": moving,
            "waits": not moving and 2 * 1e3 * LOOK_SECONDS * self._still >= limit > 0,
            "watched": limit > 0 or overdue,
            "overdue": overdue,
            "steps": steps,
            "busy": round(busy, 2),
            "seconds": LOOK_SECONDS * self._still,
            "place": place,
            "debugged": not moving and (self._is_traced() or self._is_debugged()),
        }
        if self._still and not moving:
            self._still += int(_WATCHED_SECONDS / LOOK_SECONDS)
        self._alarmed_at, self._silent = None, 0  # if nothing comes of it, the next alarm is due as late as this one
        self._tell(json.dumps(answer).encode())

    def _used_seconds(self) -> float:
        """Seconds of a processor that its main thread has used."""
        fields = _read(f"/proc/{self._pid}/task/{self._pid}/stat").rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0

    def _end_stopped(self) -> None:
        told = (
            f"{self._title} stands still: its process was stopped {STOPPED_LOOKS * LOOK_SECONDS:.0f} s ago, "
            "and nobody has continued it."
        )
        self._say(f"{told} It is ended; where it stood:")
        # It goes on for a moment, in which the stack comes first: in rank 0 that moment is the control plane's.
        self._signal(signal.SIGUSR1, signal.SIGCONT)
        if self._tell(b'{"op":"stalled","message":"%b"}' % told.encode()):
            select.select(self._sources, [], [], _ANSWER_SECONDS)  # the others hear it when this one does
        self._end(_CAUSE_SECONDS)

    def _end_silent(self) -> None:
        words = silence_words(LOOK_SECONDS * self._still, self._dump_stacks())
        if self._is_debugged():
            self._silent = self._still = self._paused = 0
            return
        self._end_with(f"{self._title} makes no progress: {words}.")

    def _end_with(self, news: str) -> None:
        """End the rank for what the control plane has found out, which may be that this is the one."""
        is_cause = news.startswith(f"{self._title} ")
        last = self._written
        self._dump_stacks(ALL_STACKS_SIGNAL if is_cause else STACK_SIGNAL)  # a cause may wait for a thread of its own
        self._written = self._written or last
        self._say(
            f"{news} {'It' if is_cause else 'This rank'} is ended{'' if is_cause else ' with it'}; where it stood:"
        )
        self._show_stacks()
        self._end(_CAUSE_SECONDS if is_cause else _END_SECONDS)

    def _dump_stacks(self, number: int = STACK_SIGNAL) -> str:
        """Have the rank write its stacks, without Python's lock; where its main thread stands."""
        before = os.fstat(self._stacks).st_size
        self._signal(number)
        select.select([self._rank], [], [], _STACK_SECONDS)
        self._written = os.pread(self._stacks, 1 << 18, before)
        return place_of(self._written.decode(errors="replace"), self._main_thread)

    def _show_stacks(self) -> None:
        """Write them where the rank writes its errors, and the native ones where py-spy can be had."""
        with contextlib.suppress(OSError):
            os.write(2, self._written)
        folders = [sys.executable.rpartition("/")[0], *os.environ.get("PATH", "").split(os.pathsep)]
        spy = next((path for folder in folders if os.access(path := f"{folder}/py-spy", os.X_OK)), None)
        if spy is None:
            return
        import subprocess  # most sentries never need it

        command = [spy, "dump", "--native", "--pid", str(self._pid)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, timeout=_NATIVE_SECONDS, check=False)

    def _end(self, seconds: float) -> None:
        """End the rank unless it ends by itself."""
        self._is_over = True
        if not select.select([self._rank], [], [], seconds)[0]:
            self._signal(signal.SIGKILL)

    def _signal(self, *numbers: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            for number in numbers:
                signal.pidfd_send_signal(self._rank, number)

    def _tell(self, body: bytes) -> bool:
        """Send a message; whether somebody is there for it."""
        with contextlib.suppress(OSError):  # rank 0 is gone: the others know that; or there are no others
            return os.write(self._connection, len(body).to_bytes(4, "big") + body) > 0
        return False

    def _say(self, text: str) -> None:
        """Write a line where the rank writes its errors."""
        with contextlib.suppress(OSError):
            os.write(2, f"distributed: {text}\n".encode())


def pause_looks(longest: int) -> int:
    """Looks that an announced silence may take, of the milliseconds of any other: others wait for twice as long."""
    return int(max(longest, 2 * longest - 1e3 * _EARLIER_SECONDS) / (1e3 * LOOK_SECONDS))


def silence_words(seconds: float, place: str) -> str:
    """Such as ``nothing has moved for 300 s, and it stands at /code/train.py:33 (loss)``."""
    return f"nothing has moved for {seconds:.0f} s{f', and it stands at {place}' if place else ''}"


def _read(path: str) -> bytes:
    """Read a file of /proc; empty where the process is gone."""
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123  (pathlib is slow to import)
        return file.read()
    return b""


def main(arguments: Sequence[str]) -> None:
    """Watch the process with the number that is given; see ``liveness.start_sentry`` for the rest."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    pid, *numbers, main_thread, title = arguments
    # The rank's numbers of them may be above 1023, which select takes: rank 0 of many has a connection for each.
    connection, page, stacks = (ALONE if int(number) == ALONE else os.dup(int(number)) for number in numbers)
    with contextlib.suppress(OSError):  # the rank has ended meanwhile
        Sentry(int(pid), connection, page, stacks, main_thread, title).watch()


if __name__ == "__main__":
    main(sys.argv[1:])

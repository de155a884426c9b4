"""A gang: all ranks of one attempt of a step, started together; the first failure ends them all."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allranks.local import processes
from allranks.local.guard import ProcessGuard
from allranks.local.rank_command import RankCommand
from allranks.local.rank_process import RankProcess
from allranks.local.resources.usage import ProcessEnd


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended.

    ``code`` is the exit status, or minus the number of the signal that killed it; ``when`` its log fell silent, in
    seconds since 1970; ``ended`` is when it was seen that it had, in monotonic seconds; ``used`` what it has used, of
    ranks that the engine has started itself.
    """

    command: RankCommand
    code: int
    when: float
    ended: float = field(default_factory=time.monotonic)
    used: ProcessEnd | None = None

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it, or what its shell had started."""
        return self.code in {-signal.SIGKILL, 128 + signal.SIGKILL}

    @property
    def reason(self) -> str:
        """``ended with exit code 3``, or ``was killed by SIGKILL``."""
        if self.code < 0:
            return f"was killed by {_signal_name(-self.code)}"
        # A shell reports the death of its command by a signal as 128 + the signal's number.
        killed = f" (killed by {_signal_name(self.code - 128)})" if 128 < self.code < 128 + signal.NSIG else ""
        return f"ended with exit code {self.code}{killed}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RankGang:
    """The running ranks of one attempt, a process for each command.

    The guard is told of every session, in case this process is killed. The marker is ``NAME=value`` in the environment
    of all of the gang's processes and of no others; ``end`` is called with it when they have to end, for those that no
    signal reaches. ``locked`` are paths that they cannot write to; see ``read_only.py``. So many ``spare`` processes
    may fail, though none of the first node, because the others go on without them.

    ``timed_out`` says whether its
    ranks were asked for their stacks, and ``silences`` for how many seconds each had then printed nothing;
    ``is_stopping`` whether they were asked to save and to end, in which none is to be held up by another's end;
    ``ended_alone`` are the ranks that had ended before the others were killed.
    """

    def __init__(
        self,
        commands: Sequence[RankCommand],
        guard: ProcessGuard,
        marker: str,
        umask: int,
        end: Callable[[str], None],
        locked: Sequence[bytes] = (),
        spare: int = 0,
    ) -> None:
        self.commands = tuple(commands)
        self.started = time.monotonic()
        self.exits: list[RankExit] = []
        self.ended_alone: tuple[RankExit, ...] = ()
        self.marker = marker.encode()
        self.sessions: set[int] = set()
        self._guard = guard
        self._umask = umask
        self._end = end
        self._locked = tuple(locked)
        self._spare = spare
        self._killed = False
        self.timed_out = False
        self.is_stopping = False
        self.silences: list[tuple[RankCommand, float]] = []
        self._dismissed = False
        self._running: dict[int, tuple[RankProcess, RankCommand]] = {}
        try:
            for command in self.commands:
                self._start(command)
        except (OSError, ValueError):  # ValueError: a variable's name or value that no process can have
            self.kill()
            self.reap(self.descriptors)
            raise

    def _start(self, command: RankCommand) -> None:
        process = RankProcess(command, self._umask, self._locked)
        self._guard.add(process.pid)
        self.sessions.add(process.pid)
        self._running[process.descriptor] = (process, command)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """A pidfd for each running rank; readable when the rank has ended."""
        return tuple(self._running)

    @property
    def running(self) -> list[RankCommand]:
        """The ranks that still run."""
        return [command for _, command in self._running.values()]

    @property
    def pids(self) -> set[int]:
        """The process ids of the running ranks."""
        return {process.pid for process, _ in self._running.values()}

    def environ_of(self, pid: int) -> Mapping[str, str]:
        """What a rank was started with, also when it has ended and only waits to be reaped; {} of other processes."""
        environs = (command.environ for process, command in self._running.values() if process.pid == pid)
        return next(environs, {})

    @property
    def is_finished(self) -> bool:
        """Whether no rank is running any more."""
        return not self._running

    def reap(self, descriptors: Sequence[int]) -> list[RankExit]:
        """Take note of the ranks that have ended, in the order in which their logs fell silent.

        Ranks that are found dead in the same moment are told apart by their last words: the one that failed first
        wrote last before the others noticed.
        """
        ended = []
        for descriptor in descriptors:
            process, command = self._running.pop(descriptor)
            code, used = process.reap()
            self._guard.remove(process.pid)
            code = 0 if self._dismissed else code
            ended.append(RankExit(command, code, _last_written(command.log), used=used))
        ended.sort(key=lambda exit_: exit_.when)
        self.exits += ended
        return ended

    @property
    def first_failure(self) -> RankExit | None:
        """The rank that ended the gang, if one failed that it cannot do without."""
        failed = [exit_ for exit_ in self.exits if exit_.code != 0]
        return next((one for lost, one in enumerate(failed, 1) if lost > self._spare or one.command.node == 0), None)

    @property
    def beside_killed(self) -> tuple[int, ...]:
        """The descriptors of the ranks that run on the node, one of several, on which the first failure was a kill."""
        first = self.first_failure
        if first is None or not first.was_killed or {one.node for one in self.commands} == {first.command.node}:
            return ()
        return tuple(key for key, (_, command) in self._running.items() if command.node == first.command.node)

    @property
    def has_losses(self) -> bool:
        """Whether processes have failed without which the others go on."""
        return self.first_failure is None and any(exit_.code != 0 for exit_ in self.exits)

    @property
    def only_servers_left(self) -> bool:
        """Whether all workers have succeeded and only parameter servers still run."""
        running = [command for _, command in self._running.values()]
        return bool(running) and self.first_failure is None and not any(command.essential for command in running)

    def dismiss_servers(self) -> None:
        """End parameter servers that wait for ever, as many scripts let them; that is no failure."""
        self._dismissed = True
        self.kill()

    def ask_for_stacks(self) -> None:
        """Let Python ranks that registered faulthandler on SIGUSR1 write their stacks; others just end."""
        self.timed_out = True
        for process, command in self._running.values():
            self.silences.append((command, max(0.0, time.time() - _last_written(command.log))))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL all ranks and their groups, as Azure ML does on a node with a failed rank."""
        for process, _ in self._running.values():
            processes.kill_group(process.pid)
        if not self._killed:
            self._killed, self.ended_alone = True, tuple(self.exits)
            self._end(self.marker.decode())


def _last_written(log: Path) -> float:
    try:
        return log.stat().st_mtime
    except OSError:
        return time.time()

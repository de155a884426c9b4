"""End a process of a gang that stays stopped (SIGSTOP)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from allranks.local import processes
from allranks.local.gang import RankGang
from allranks.local.resources.owners import owner_by_variables
from allranks.local.resources.usage import read_variables

LOOK_SECONDS: Final = 0.5
STOPPED_LOOKS: Final = 16
"""In a row: of no more than 8.5 s."""
_STOPPED: Final = b"T"
_STACK_SECONDS: Final = 0.3
_ASLEEP_SECONDS: Final = 4.0
"""A look that comes later than this: the machine slept, or this process was stopped itself."""


class StoppedRanks:
    """Looks twice a second at the processes of the gangs that run, which takes 20 microseconds for each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0
        self._looks: dict[int, tuple[int, bytes]] = {}

    def look(self, gangs: Iterable[RankGang]) -> None:
        """End each process that has been stopped in all of the last looks; its gang ends with it."""
        now = self._clock()
        if now < self._next:
            return
        before = self._looks if now < self._next + _ASLEEP_SECONDS else {}
        self._next, self._looks = now + LOOK_SECONDS, {}
        for gang in gangs:
            for pid in _descendants(gang.pids):
                if processes.stat_fields(pid)[:1] == [_STOPPED]:
                    switches = processes.count_switches(pid)
                    count, earlier = before.get(pid, (0, switches))
                    # Who is stopped and continued in turns is slow, and does not stand still.
                    count = count + 1 if switches == earlier else 1
                    self._looks[pid] = (count, switches)
                    if count >= STOPPED_LOOKS:
                        _end(pid, count * LOOK_SECONDS)


def _descendants(roots: Iterable[int]) -> Iterator[int]:
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += processes.children_of(pid)


def _end(pid: int, seconds: float) -> None:
    """Say in the log of the rank why it is ended, as the other ranks would, let it tell its stack, and end it."""
    owner = owner_by_variables(read_variables(pid))
    rank, node = (owner.rank, owner.node) if owner is not None else (None, 0)
    who = f"rank {rank}" if rank is not None else f"process {pid}"
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/fd/2").open("a", encoding="utf-8") as log:
        log.write(
            f"distributed: {who} (node {node}) stands still: its process was stopped {seconds:.0f} s ago, and nobody "
            "has continued it. It is ended.\n"
        )
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if processes.catches(pid, signal.SIGUSR1):
            os.kill(pid, signal.SIGUSR1)
            os.kill(pid, signal.SIGCONT)
            time.sleep(_STACK_SECONDS)
        os.kill(pid, signal.SIGKILL)  # this one alone: the rank that ends first is the one whose log is quoted

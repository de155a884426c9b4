"""What Linux tells of processes: in /proc while they run, and once more when they have ended and are not reaped yet."""

from __future__ import annotations

import operator
import os
import resource
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from allranks.local.processes import every_pid, split_stat, stat_fields

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class UsedCounters(NamedTuple):
    """What only grows: seconds on processors, and bytes.

    ``read_bytes`` and ``written_bytes`` are those that went through calls of read and write, whether a disk, the
    system's cache or a pipe was behind them; those of ``disk_`` reached a disk, mapped files among them.
    """

    cpu_seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    disk_read_bytes: int = 0
    disk_written_bytes: int = 0

    def plus(self, other: UsedCounters) -> UsedCounters:
        """The sum of both."""
        return UsedCounters._make(map(operator.add, self, other))

    def minus(self, other: UsedCounters) -> UsedCounters:
        """What has come since ``other``; never below 0."""
        return UsedCounters._make(max(0, one) for one in map(operator.sub, self, other))

    def highest(self, other: UsedCounters) -> UsedCounters:
        """The larger of each: counters that fall belong to a process that has ended unseen."""
        return UsedCounters._make(map(max, self, other))


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """What an ended process has used in its whole life, with its children that it has waited for.

    ``peak_bytes`` is the highest resident memory of one of these processes; 0 where it is not known.
    """

    counters: UsedCounters
    peak_bytes: int


def reap_process(process: subprocess.Popen[bytes]) -> ProcessEnd:
    """Wait for a process to end, and see what it has used; after its reaping nobody knows any more."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(process.pid)
        counters = read_counters(stat) if stat else UsedCounters()
        _, status, used = os.wait4(process.pid, 0)
    except ChildProcessError:  # somebody else has reaped it
        process.wait()
        return ProcessEnd(UsedCounters(), 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # Before exec a child has the engine's memory, and the kernel counts that: below it nothing is known.
    return ProcessEnd(counters, used.ru_maxrss * 1024 if used.ru_maxrss > before else 0)


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process.

    Attributes:
        began: when it did, in ticks of the kernel: with the id it is unique.
        cpu_seconds: its own time on processors, and that of its children that have ended.
        rss_bytes: resident memory; what it shares with others is counted in each of them.
    """

    pid: int
    parent: int
    began: int
    cpu_seconds: float
    threads: int
    rss_bytes: int


@dataclass(frozen=True)
class ProcessTable:
    """All processes of the machine at one moment, by id."""

    stats: Mapping[int, ProcessStat] = field(default_factory=dict)

    @cached_property
    def _children(self) -> Mapping[int, list[int]]:
        found: dict[int, list[int]] = {}
        for stat in self.stats.values():
            found.setdefault(stat.parent, []).append(stat.pid)
        return found

    def children(self, pid: int) -> list[ProcessStat]:
        """The children of a process."""
        return [self.stats[child] for child in self._children.get(pid, ())]

    def tree(self, roots: Iterable[int]) -> Iterator[ProcessStat]:
        """These processes, as far as they are there, and all below them; a parent comes before its children."""
        waiting = [self.stats[root] for root in roots if root in self.stats]
        while waiting:
            stat = waiting.pop()
            yield stat
            waiting += self.children(stat.pid)


def read_process_table() -> ProcessTable:
    """Look at every process; costs about 20 microseconds for each."""
    found = (read_stat(pid) for pid in every_pid())
    return ProcessTable({stat.pid: stat for stat in found if stat is not None})


def read_stat(pid: int) -> ProcessStat | None:
    """One process; None when it has been reaped."""
    return _process_stat(pid, stat_fields(pid))


def _process_stat(pid: int, fields: Sequence[bytes]) -> ProcessStat | None:
    if len(fields) < 22:
        return None
    numbers = [int(value) for value in fields[1:22]]  # from the parent on; proc(5) counts from 1, and the parent is 4
    ticks = sum(numbers[10:14])  # utime, stime, cutime, cstime
    return ProcessStat(pid, numbers[0], numbers[18], ticks / _TICKS, numbers[16], numbers[20] * _PAGE)


def read_counters(stat: ProcessStat) -> UsedCounters:
    """What a process has used with its children that have ended; no bytes where it belongs to somebody else."""
    try:
        return _counters(stat, Path(f"/proc/{stat.pid}/io").read_bytes())
    except OSError:
        return UsedCounters(stat.cpu_seconds)


def parse_counters(stat: bytes, io: bytes) -> UsedCounters:
    """The same of the texts of both files, which a process has kept of itself."""
    found = _process_stat(0, split_stat(stat))
    return UsedCounters() if found is None else _counters(found, io)


def _counters(stat: ProcessStat, io: bytes) -> UsedCounters:
    told = _pairs(io, b"\n", b": ")
    read, written, from_disk, to_disk = (
        int(told.get(name, 0)) for name in (b"rchar", b"wchar", b"read_bytes", b"write_bytes")
    )
    return UsedCounters(stat.cpu_seconds, read, written, from_disk, to_disk)


def read_variables(pid: int) -> dict[str, str]:
    """The variables that a process was started with; none if it has ended, or belongs to somebody else."""
    try:
        told = _pairs(Path(f"/proc/{pid}/environ").read_bytes(), b"\0", b"=")
    except OSError:
        return {}
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in told.items()}


def _pairs(text: bytes, end: bytes, between: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(between) for line in text.split(end))
    return {name: value for name, _, value in pairs if name}

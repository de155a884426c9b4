"""What the kernel tells of want of memory: how many processes it has killed for it, and how much there may be in use.

A control group (cgroup) limits the memory of its processes and counts those of them that were killed for it, whether
its own limit, that of a group above it or the machine's memory was at its end: ``memory.events`` of version 2,
``memory.oom_control`` of version 1 (docs.kernel.org, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). Where there
is no such group /proc/vmstat has the count of the whole machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_VERSIONS = (("memory", "memory.oom_control", "memory.limit_in_bytes"), ("", "memory.events", "memory.max"))
"""The controller in a line of /proc/self/cgroup, and the files; where both versions are version 1 has the memory."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """So many bytes may be in use, and whose limit that is: ``its control group`` or ``the machine``."""

    size: int
    owner: str


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The control group that this process and those that it starts are in, below ``top`` where groups are mounted."""

    folder: Path
    top: Path
    events: str
    limit: str

    def count_kills(self) -> int | None:
        """How many of its processes were killed for want of memory; None where the kernel does not tell."""
        return _read_count(self.folder / self.events)

    def lowest_limit(self) -> int | None:
        """The lowest limit in bytes of this group and of those above it; None without one."""
        folders = [self.folder, *self.folder.parents]
        within = folders[: folders.index(self.top) + 1]
        told = (_read_text(folder / self.limit).strip() for folder in within)
        return min((int(limit) for limit in told if limit.isdigit()), default=None)


def find_memory_group(proc: Path = _PROC) -> MemoryGroup | None:
    """The group of this process; None where memory is not grouped, or only the whole machine is."""
    paths: dict[str, Path] = {}
    for line in _read_text(proc / "self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), Path(own))
    for controller, events, limit in _VERSIONS:
        mount = _find_mount(proc, controller)
        if mount is None or controller not in paths:
            continue
        root, top = mount
        path = paths[controller]
        # A group above the mounted ones is out of sight in a container: then its own one is mounted.
        folder = top / path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else top
        if (folder / events).is_file():
            return MemoryGroup(folder, top, events, limit)
    return None


def _find_mount(proc: Path, controller: str) -> tuple[Path, Path] | None:
    """Which group is the root of what is mounted, and where; proc(5) has the fields of mountinfo."""
    for line in _read_text(proc / "self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        kind_name, _, options = kind.partition(" ")
        has_it = kind_name == "cgroup" and controller in options.split(" ")[-1].split(",")
        if kind_name == "cgroup2" if not controller else has_it:
            return Path(place.split(" ")[3]), Path(place.split(" ")[4])
    return None


@cache
def _own_group() -> MemoryGroup | None:
    return find_memory_group()


def count_own_kills() -> int | None:
    """Of the processes that this one starts, of its group, or of the machine where there is none."""
    group = _own_group()
    return group.count_kills() if group else count_machine_kills()


def count_machine_kills(proc: Path = _PROC) -> int | None:
    """Of all processes of this machine, those in containers among them."""
    return _read_count(proc / "vmstat")


def find_memory_limit() -> MemoryLimit:
    """What the processes that this one starts may have together."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = _own_group()
    limit = group.lowest_limit() if group else None
    if limit is None or limit >= machine:
        return MemoryLimit(machine, "the machine")
    return MemoryLimit(limit, "its control group")


class KillCounter:
    """Says whether the kernel has killed for want of memory since a mark; each kill explains one end alone.

    So a rank that somebody kills later in the same run is not taken for one of these.
    """

    def __init__(self, count: Callable[[], int | None]) -> None:
        self._count = count
        self._explained = 0

    def mark(self) -> int | None:
        """The kills so far that have explained nothing; None where they are not known."""
        counted = self._count()
        return None if counted is None else counted - self._explained

    def explain(self, mark: int | None) -> bool | None:
        """Whether a kill has come since this mark, which is used up then; None where that is not known."""
        now = self.mark()
        if now is None or mark is None:
            return None
        self._explained += now > mark
        return now > mark


def _read_count(path: Path) -> int | None:
    """The number behind ``oom_kill``."""
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return int(value)
    return None


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

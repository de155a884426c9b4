"""One attempt of a step: whose its processes are, and what each owner has used since the look before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from allranks.local.execution import StepExecution
from allranks.local.gang import RankGang
from allranks.local.processes import carries
from allranks.local.resources.gpus import GpuProbe
from allranks.local.resources.notes import read_rank_uses
from allranks.local.resources.owners import ProcessOwner, owner_by_variables
from allranks.local.resources.samples import ResourceSample, SampleFile
from allranks.local.resources.usage import ProcessStat, ProcessTable, UsedCounters, read_counters, read_variables

FIRST_LOOK, NEXT_LOOK = 0.5, 2.0  # seconds from the start of an attempt, and between two looks at first


@dataclass(slots=True)
class _Held:
    """What the processes of one owner have used, and what they hold now."""

    counters: UsedCounters = field(default_factory=UsedCounters)
    rss_bytes: int = 0
    processes: int = 0
    threads: int = 0
    peak_bytes: int = 0

    def add(self, stat: ProcessStat, counters: UsedCounters) -> None:
        self.counters = self.counters.plus(counters)
        if stat.rss_bytes:  # else it has ended and is not reaped yet
            self.rss_bytes += stat.rss_bytes
            self.processes += 1
            self.threads += stat.threads


@dataclass(slots=True)
class _Found:
    """One look: the step as a whole, its ranks with the node of each, and what starts them."""

    step: _Held = field(default_factory=_Held)
    ranks: dict[int, _Held] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)
    launcher: _Held | None = None

    def of(self, owner: ProcessOwner) -> _Held:
        """The part that belongs to an owner."""
        if owner.rank is None:
            self.launcher = self.launcher or _Held()
            return self.launcher
        self.nodes[owner.rank] = owner.node  # of a child: what mpirun starts for a rank still has the first node's
        return self.ranks.setdefault(owner.rank, _Held())


class AttemptSampler:
    """Looks at the attempt of a step that runs; ``due`` is when the next look is.

    Counters of an owner never fall. What torchrun has waited for counts as its own, and what mpirun has waited for as
    nobody's, so that what they use themselves is what remains of the step's whole without its ranks.
    """

    def __init__(self, execution: StepExecution, gang: RankGang, file: SampleFile, every: float) -> None:
        self.gang, self.file, self.every = gang, file, every
        self._folder, self._attempt = execution.folder, execution.attempts
        self._before = max(0.0, execution.seconds - (time.monotonic() - gang.started))
        self.due = gang.started + FIRST_LOOK
        self._last = gang.started
        self._has_torchrun = False
        self._nodes: dict[int, int] = {}
        self._written: dict[tuple[str, int | None], UsedCounters] = {}

    def look(self, table: ProcessTable, gpus: GpuProbe, now: float) -> None:
        """Write what is used now."""
        if self._write(self._count(table), gpus, now):
            self.every *= 2
        self.due = now + self.every

    def finish(self, gpus: GpuProbe) -> None:
        """Write what the attempt has used to its end: all of its processes have been reaped."""
        ended = max((exit_.ended for exit_ in self.gang.exits), default=self._last)
        self._write(self._count(ProcessTable()), gpus, max(ended, self._last + 0.001))

    def _count(self, table: ProcessTable) -> _Found:
        found = _Found()
        for stat, owner in self._owned(table):
            counters = read_counters(stat)
            found.step.add(stat, counters)
            found.of(owner).add(stat, counters)
        for exit_ in self.gang.exits:
            if exit_.used is not None:
                held = found.of(self._corrected(owner_by_variables(exit_.command.environ) or ProcessOwner(0, None)))
                for part in (found.step, held):
                    part.counters = part.counters.plus(exit_.used.counters)
                    part.peak_bytes = max(part.peak_bytes, exit_.used.peak_bytes)
        for rank, counters in read_rank_uses(self._folder).items() if found.launcher else ():
            held = found.of(ProcessOwner(found.nodes.get(rank, self._nodes.get(rank, 0)), rank))
            held.counters = held.counters.highest(counters)
        self._nodes |= found.nodes
        return found

    def _owned(self, table: ProcessTable) -> Iterable[tuple[ProcessStat, ProcessOwner]]:
        """The processes of the attempt, each with the owner that its variables tell, or with its parent's."""
        owners: dict[int, ProcessOwner] = {}
        stats = list(table.tree(self._roots(table)))
        for stat in stats:
            own = owner_by_variables(read_variables(stat.pid) or self.gang.environ_of(stat.pid))
            owners[stat.pid] = own or owners.get(stat.parent) or ProcessOwner(0, None)
        self._has_torchrun = self._has_torchrun or any(owner.by_torchrun for owner in owners.values())
        return [(stat, self._corrected(owners[stat.pid])) for stat in stats]

    def _corrected(self, owner: ProcessOwner) -> ProcessOwner:
        """Torchrun itself has the variables of a rank: there is one on each node."""
        return ProcessOwner(owner.node, None) if self._has_torchrun and not owner.by_torchrun else owner

    def _roots(self, table: ProcessTable) -> list[int]:
        """What the engine has started for the attempt, and what has fallen to it since: it is the subreaper."""
        started = self.gang.pids
        others = (stat.pid for stat in table.children(os.getpid()) if stat.pid not in started)
        return [*started, *(pid for pid in others if carries(pid, self.gang.marker))]

    def _write(self, found: _Found, gpus: GpuProbe, now: float) -> bool:
        """Whether the file was full, and has half as many looks now."""
        about = {
            "attempt": self._attempt,
            "at": round(self._before + now - self.gang.started, 2),
            "over": round(now - self._last, 3),
        }
        lines: list[ResourceSample] = []
        for rank, held in sorted(found.ranks.items()):
            used = self._used(("rank", rank), held)
            lines.append(about | {"of": "rank", "rank": rank, "node": found.nodes[rank]} | used)
        ranks = _sum(counters for (of, _), counters in self._written.items() if of == "rank")
        launcher = self._written.get(("launcher", None), UsedCounters())
        found.step.counters = found.step.counters.highest(ranks.plus(launcher))
        lines.insert(0, about | {"of": "step"} | self._used(("step", None), found.step))
        if found.launcher is not None:
            held = found.launcher
            held.counters = self._written["step", None].minus(ranks)
            held.peak_bytes = 0  # it may be that of a rank that it has waited for
            lines.append(about | {"of": "launcher"} | self._used(("launcher", None), held))
        if gpus.at > self._last:
            visible = self.gang.commands[0].environ.get("CUDA_VISIBLE_DEVICES")
            for state in (state for state in gpus.states if state.is_one_of(visible)):
                seconds = round(state.use * about["over"], 3)
                lines.append(
                    about
                    | {"of": "gpu", "gpu": state.index, "gpu_seconds": seconds, "gpu_memory_bytes": state.memory_bytes}
                )
        self._last = now
        return self.file.append(lines)

    def _used(self, key: tuple[str, int | None], held: _Held) -> dict[str, Any]:
        """As a line has it: what has come since the last one, and what is held if anything runs."""
        before = self._written.get(key, UsedCounters())
        self._written[key] = before.highest(held.counters)
        since = self._written[key].minus(before)
        counted = since._asdict() | {"cpu_seconds": round(since.cpu_seconds, 3)}
        names = ("rss_bytes", "processes", "threads")
        holds = {name: getattr(held, name) for name in names} if held.processes else {}
        return counted | holds | ({"peak_bytes": held.peak_bytes} if held.peak_bytes else {})


def _sum(counters: Iterable[UsedCounters]) -> UsedCounters:
    total = UsedCounters()
    for one in counters:
        total = total.plus(one)
    return total

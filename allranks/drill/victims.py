"""Which processes a rank or an emulated node has, as their variables tell, whatever has started them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from allranks.drill.faults import ALL, LAUNCHER, NODE, DrillFault
from allranks.local import processes
from allranks.local.plan import PlannedStep
from allranks.local.resources.usage import read_variables

_SHELLS = ("bash", "sh", "dash")
_MPIRUNS = ("mpirun", "mpiexec", "orterun", "prterun")  # as Open MPI 4 and 5 name it, by what it is started as
_RANK_NAME = re.compile(r"rank_(\d+)")


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A process of a step; ``rank`` is None of one that has started the ranks, such as mpirun or torchrun's agent."""

    pid: int
    parent: int
    rank: int | None
    name: str

    @property
    def is_shell(self) -> bool:
        """Whether it only waits for the command of the step."""
        return self.name in _SHELLS


def processes_of(marker: str) -> list[RankProcess]:
    """The processes that carry ``NAME=value`` in their variables, zombies aside."""
    found = []
    for pid in processes.every_pid():
        variables = read_variables(pid)
        name, _, value = marker.partition("=")
        if variables.get(name) != value:
            continue
        fields = processes.stat_fields(pid)
        if len(fields) > 1 and fields[0] != b"Z":
            found.append((pid, int(fields[1]), variables))
    # Under torchrun the variables of Azure ML name the agent, and those of torchrun its ranks.
    by_agent = any("TORCHELASTIC_RUN_ID" in variables for _, _, variables in found)
    return [RankProcess(pid, parent, _rank_of(one, by_agent=by_agent), _comm(pid)) for pid, parent, one in found]


def _rank_of(variables: Mapping[str, str], *, by_agent: bool) -> int | None:
    if by_agent:
        return _number(variables.get("RANK")) if "TORCHELASTIC_RUN_ID" in variables else None
    if "OMPI_COMM_WORLD_RANK" in variables:
        return _number(variables["OMPI_COMM_WORLD_RANK"])
    named = variables.get("AZUREML_PROCESS_NAME", "")
    match = _RANK_NAME.fullmatch(named)
    return int(match[1]) if match else 0 if named == "main" else None


def victims_of(fault: DrillFault, step: PlannedStep, running: Collection[RankProcess]) -> list[RankProcess]:
    """The processes that the fault strikes; empty while there are none.

    A rank that is stopped or slowed is its program alone: what it has started goes on, as beside a real one.
    """
    if fault.victim == ALL:
        return [one for one in running if one.rank is not None and not one.is_shell]
    if fault.victim == NODE:
        return _of_node(fault.number, step, running)
    if fault.victim == LAUNCHER:
        return _launcher_of(fault.number, step, running)
    own = [one for one in running if one.rank == fault.number]
    return own if fault.action == "kill" else _programs(own)


def _of_node(node: int, step: PlannedStep, running: Collection[RankProcess]) -> list[RankProcess]:
    """The ranks of a node, and what has started them and none of another node; of node 0 also what started all."""
    by_pid = {one.pid: one for one in running}
    own, others = set[int](), set[int]()
    for one in running:
        if one.rank is not None:
            (own if _node_of(one.rank, step) == node else others).update([one.pid, *_chain(one, by_pid)])
    launchers = {one.pid for one in running if one.rank is None and one.pid not in own | others}
    chosen = own | launchers if node == 0 else own - others
    return [one for pid, one in by_pid.items() if pid in chosen and (one.rank is None or pid not in others)]


def _launcher_of(node: int, step: PlannedStep, running: Collection[RankProcess]) -> list[RankProcess]:
    """What has started the ranks of a node: torchrun's agent, Open MPI's daemon, and on node 0 mpirun itself."""
    by_pid = {one.pid: one for one in running}
    above = set[int]()
    for one in running:
        if one.rank is not None and _node_of(one.rank, step) == node:
            starters = [by_pid[pid] for pid in _chain(one, by_pid)]
            above.update([starter.pid for starter in starters if starter.rank is None and not starter.is_shell][:1])
    mpiruns = [one for one in running if one.name in _MPIRUNS and one.rank is None]
    return mpiruns if mpiruns and node == 0 and above else [one for one in running if one.pid in above]


def _node_of(rank: int, step: PlannedStep) -> int:
    """TensorFlow's workers and parameter servers are numbered one after the other, a worker on each node."""
    if step.distribution == "tensorflow":
        return rank if rank < step.nodes else (rank - step.nodes) % step.nodes
    return rank // step.processes


def _chain(one: RankProcess, by_pid: Mapping[int, RankProcess]) -> list[int]:
    """The processes of the step above one of them."""
    found: list[int] = []
    while one.parent in by_pid and one.parent not in found:
        one = by_pid[one.parent]
        found.append(one.pid)
    return found


def _programs(own: Collection[RankProcess]) -> list[RankProcess]:
    """What runs the rank's script: of its processes the topmost that is no shell."""
    by_pid = {one.pid: one for one in own}
    return [
        one for one in own if not one.is_shell and all(by_pid[pid].is_shell for pid in _chain(one, by_pid))
    ] or list(own)


def send_signal(number: signal.Signals, victims: Iterable[RankProcess]) -> None:
    """Send a signal to each; one that has ended is no fault."""
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, number)


def are_gone(pids: Iterable[int]) -> bool:
    """Whether all of these processes have ended, zombies included."""
    return all(processes.stat_fields(pid)[:1] in ([], [b"Z"]) for pid in pids)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

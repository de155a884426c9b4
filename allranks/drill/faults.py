"""Faults of a drill: how ``[STEP:]rank=1@step=40`` is read, and which processes of a step a fault strikes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from allranks.errors import UsageError
from allranks.local import processes
from allranks.local.plan import PlannedStep
from allranks.local.resources.owners import owner_by_variables
from allranks.local.resources.usage import read_variables
from allranks.wording import with_count

KILL, STOP = "kill", "stop"
RANK, NODE, ENGINE = "rank", "node", "engine"
AT_STEP, AT_SECONDS, AT_SHARE = "step", "seconds", "share"

_HINT = (
    "WHEN is step=40 (of the training, from 1), 10s, or 50% (of the undisturbed time, below 100%). "
    "For example: --{0} rank=1@step=40, or where several steps have ranks --{0} train:node=1@10s."
)
_FAULT = re.compile(
    r"(?:(?P<where>[A-Za-z_][\w.\-]*):)?(?:(?P<victim>rank|node)=(?P<number>\d{1,6})|engine)"
    r"@(?:step=(?P<step>0*[1-9]\d{0,14})|(?P<seconds>\d{1,9}(?:\.\d{1,3})?)s|(?P<share>\d{1,2}(?:\.\d{1,3})?)%)"
)
_SHELLS = ("bash", "sh", "dash")


@dataclass(frozen=True, slots=True)
class DrillFault:
    """One fault.

    Attributes:
        action: ``kill`` (SIGKILL) or ``stop`` (SIGSTOP).
        victim: ``rank``, ``node`` (all processes of an emulated one), or ``engine`` (what runs the pipeline).
        number: of the rank or the node, from 0.
        kind: of the moment, one of the ``AT_`` above.
        value: the step, the seconds since the step of the pipeline began, or per cent of its undisturbed time.
        step: the step of the pipeline; empty for the only one that it can be.
    """

    action: str
    victim: str
    number: int
    kind: str
    value: float
    step: str = ""

    def __str__(self) -> str:
        who = self.victim if self.victim == ENGINE else f"{self.victim}={self.number}"
        moment = {AT_STEP: f"step={self.value:g}", AT_SECONDS: f"{self.value:g}s", AT_SHARE: f"{self.value:g}%"}
        return f"{self.step}{':' if self.step else ''}{who}@{moment[self.kind]}"


def parse_fault(action: str, text: str) -> DrillFault:
    """Read ``[STEP:]WHAT@WHEN``.

    Args:
        action: ``kill`` or ``stop``.
        text: as it was typed.

    Raises:
        UsageError: it is not written so, or the action cannot happen to it.
    """
    match = _FAULT.fullmatch(text)
    if match is None:
        rule = f"[STEP:]rank=N@WHEN or node=N@WHEN{', or engine@WHEN' if action == KILL else ''}"
        raise UsageError(f"--{action} {text!r} is not {rule}.", _HINT.format(action))
    victim, kind = match["victim"] or ENGINE, match.lastgroup or ""
    if victim == ENGINE and action != KILL:
        raise UsageError(f"--{action} {text!r}: the engine can only be killed.", "Choose rank=N or node=N.")
    return DrillFault(action, victim, int(match["number"] or 0), kind, float(match[kind]), match["where"] or "")


def place_fault(fault: DrillFault, steps: Mapping[str, PlannedStep], asked: Sequence[str] = ()) -> DrillFault:
    """The fault with the name of its step; it strikes one of these, of which some may have been ``asked`` for.

    Raises:
        UsageError: it could be several steps, the step has no such rank or node, or its ranks cannot be struck here.
    """
    name = fault.step or _step_to_strike(steps, asked, fault)
    step, option = steps.get(name), f"--{fault.action} {fault}"
    if step is None:
        raise UsageError(f"{option}: {name!r} is no step.", f"The steps are {', '.join(steps)}.")
    if step.kind in ("sweep", "if_else"):
        what = "its trials are steps of their own" if step.kind == "sweep" else "it runs nothing"
        raise UsageError(f"{option}: {name} is of the kind {step.kind}: {what}.", "Choose a step that has ranks.")
    count = {RANK: step.ranks + step.parameter_servers, NODE: step.nodes}.get(fault.victim)
    if count is not None and fault.number >= count:
        what = f"{name} has {with_count(count, fault.victim)}, counted from 0"
        raise UsageError(f"{option}: {what}.", f"--scale {name}=NODESxPROCESSES gives it others.")
    return replace(fault, step=name)


def _step_to_strike(steps: Mapping[str, PlannedStep], asked: Sequence[str], fault: DrillFault) -> str:
    """The only step that there is, that was asked for, or that has several ranks; raises UsageError without one."""
    ranked = [name for name, step in steps.items() if step.ranks > 1]
    named = next((names for names in (list(steps), list(asked), ranked) if len(names) == 1), None)
    if named is None:
        example = replace(fault, step=(ranked or list(steps))[0])
        message = f"--{fault.action} {fault} names no step, and it could be several."
        raise UsageError(message, f"Write --{fault.action} {example}. Steps: {', '.join(steps)}.")
    return named[0]


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A process of a step; ``rank`` is None of one that has started the ranks, such as mpirun or torchrun's agent."""

    pid: int
    parent: int
    rank: int | None
    is_shell: bool


def processes_of(run_id: str) -> list[RankProcess]:
    """The processes whose variables have this id of a step's job, zombies aside."""
    found = []
    for pid in processes.every_pid():
        variables, fields = read_variables(pid), processes.stat_fields(pid)
        owner = owner_by_variables(variables)
        if owner is not None and variables["AZUREML_RUN_ID"] == run_id and len(fields) > 1 and fields[0] != b"Z":
            found.append((pid, int(fields[1]), owner))
    # Under torchrun the variables of Azure ML name the agent, and those of torchrun its ranks.
    by_agent = any(owner.by_torchrun for _, _, owner in found)
    return [
        RankProcess(pid, parent, owner.rank if owner.by_torchrun or not by_agent else None, _is_shell(pid))
        for pid, parent, owner in found
    ]


def _is_shell(pid: int) -> bool:
    """Whether the process only waits for the command of the step."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() in _SHELLS
    return False


def victims_of(fault: DrillFault, step: PlannedStep, running: Collection[RankProcess]) -> list[RankProcess]:
    """The processes that the fault strikes; empty while there are none.

    A rank that is stopped is its program alone: what it has started goes on, as beside a real one.
    """
    if fault.victim == NODE:
        return _of_node(fault.number, step, {one.pid: one for one in running})
    own = {one.pid: one for one in running if one.rank == fault.number}
    # Of the rank's processes the topmost that is no shell runs its script.
    programs = [one for one in own.values() if not one.is_shell and all(own[pid].is_shell for pid in _chain(one, own))]
    return programs if fault.action == STOP and programs else list(own.values())


def _of_node(node: int, step: PlannedStep, by_pid: Mapping[int, RankProcess]) -> list[RankProcess]:
    """The ranks of a node, and what has started them and none of another node; of node 0 also what started all."""
    own, others = set[int](), set[int]()
    for one in by_pid.values():
        if one.rank is not None:
            (own if _node_of(one.rank, step) == node else others).update([one.pid, *_chain(one, by_pid)])
    chosen = by_pid.keys() - (others - own) if node == 0 else own - others
    return [by_pid[pid] for pid in chosen]


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


def send_signal(number: signal.Signals, victims: Iterable[RankProcess]) -> None:
    """Send a signal to each; one that has ended is no fault."""
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, number)

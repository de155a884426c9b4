"""What strikes a run, whom and when: ``[STEP:]rank=1@step=40``, and how that is written and read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from allranks.errors import UsageError
from allranks.local.plan import PlannedStep
from allranks.wording import with_count

KILL, STOP, SLOW, FULL_DISK = "kill", "stop", "slow", "full-disk"
RANK, NODE, LAUNCHER, ENGINE, ALL = "rank", "node", "launcher", "engine", "all"
AT_STEP, AT_SECONDS, AT_SHARE, AT_CHECKPOINT, AT_SAVE = "step", "seconds", "share", "checkpoint", "save"

MOMENTS = (
    "step=40 (a step of the training), 10s, 50% (of the undisturbed time), checkpoint (after one), save (during one)"
)
_EXAMPLE = "For example: --{} rank=1@step=40, or where several steps have ranks --{} train:node=1@10s."
_SLOW_EXAMPLE = "For example: --slow rank=1:10x, or --slow train:rank=1:3x@10s."
_NUMBER = r"\d{1,9}(?:\.\d{1,3})?"
_FAULT = re.compile(
    rf"(?:(?P<step>[A-Za-z_][\w.\-]*):)?(?:(?P<victim>rank|node|launcher)=(?P<number>\d{{1,6}})|(?P<engine>engine))"
    rf"(?::(?P<factor>{_NUMBER})x)?(?:@(?P<when>\S+))?"
)
_MOMENT = re.compile(
    rf"step=(?P<at>\d{{1,15}})|(?P<seconds>{_NUMBER})s|(?P<share>{_NUMBER})%|(?P<name>checkpoint|save)"
)
_FULL_DISK = re.compile(rf"(?:(?P<step>[A-Za-z_][\w.\-]*):)?(?P<seconds>{_NUMBER})s@(?P<when>\S+)")
_LAUNCHERS = re.compile(
    r"(?<![\w.-])(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate +launch|mpirun|mpiexec)(?![\w.-])"
)
_MOST_FACTOR = 100.0


@dataclass(frozen=True, slots=True)
class FaultMoment:
    """When a fault strikes.

    Attributes:
        kind: one of the ``AT_`` above.
        value: the step, the seconds since the step of the pipeline began, or per cent of its undisturbed time.
    """

    kind: str
    value: float = 0.0

    def __str__(self) -> str:
        written = {AT_STEP: f"step={self.value:g}", AT_SECONDS: f"{self.value:g}s", AT_SHARE: f"{self.value:g}%"}
        return written.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class DrillFault:
    """One fault.

    Attributes:
        action: ``kill`` (SIGKILL), ``stop`` (SIGSTOP), ``slow``, or ``full-disk``.
        victim: ``rank``, ``node`` (all processes of an emulated one), ``launcher`` (what has started a node's ranks),
            ``engine`` (what runs the pipeline), or ``all``.
        number: of the rank or the node, from 0.
        step: the step of the pipeline; empty for the only one that it can be.
        factor: how many times slower a rank or node becomes.
        seconds: for which the disk is full.
        corrupts: whether a byte of the newest checkpoint is flipped before the step is started again.
    """

    action: str
    victim: str
    number: int
    moment: FaultMoment
    step: str = ""
    factor: float = 1.0
    corrupts: bool = False
    seconds: float = 0.0

    @property
    def ends_attempt(self) -> bool:
        """Whether the step has to be started again after it."""
        return self.action in (KILL, STOP)

    def __str__(self) -> str:
        who = self.victim if self.victim == ENGINE else f"{self.victim}={self.number}"
        who = f"{self.seconds:g}s" if self.action == FULL_DISK else who
        factor = f":{self.factor:g}x" if self.action == SLOW else ""
        return f"{self.step}{':' if self.step else ''}{who}{factor}@{self.moment}"

    @property
    def words(self) -> str:
        """``kill train:rank=1@step=40, corrupt``."""
        return f"{self.action} {self}{', corrupt' if self.corrupts else ''}"


def parse_fault(action: str, text: str) -> DrillFault:
    """Read ``[STEP:]WHAT[@WHEN]``, or of what becomes slow ``[STEP:]WHAT:FACTORx[@WHEN]``.

    Args:
        action: ``kill``, ``stop`` or ``slow``.
        text: as it was typed.

    Raises:
        UsageError: it is not written so, or the action cannot happen to it.
    """
    example = _SLOW_EXAMPLE if action == SLOW else _EXAMPLE.format(action, action)
    match = _FAULT.fullmatch(text)
    if match is None:
        rule = "[STEP:]rank=N:FACTORx[@WHEN]" if action == SLOW else "[STEP:]rank=N@WHEN or node=N@WHEN"
        rule += ", launcher=N@WHEN, engine@WHEN" if action == KILL else ""
        raise UsageError(f"--{action} {text!r} is not {rule}.", example)
    victim = ENGINE if match["engine"] else match["victim"]
    if victim in (ENGINE, LAUNCHER) and action != KILL:
        raise UsageError(f"--{action} {text!r}: the {victim} can only be killed.", "Choose rank=N or node=N.")
    if (match["factor"] is not None) != (action == SLOW):
        what = "lacks how many times slower" if action == SLOW else "has a factor, which only --slow takes"
        raise UsageError(f"--{action} {text!r} {what}.", example)
    factor = float(match["factor"] or 1)
    if action == SLOW and not 1 < factor <= _MOST_FACTOR:
        raise UsageError(f"--slow {text!r}: {factor:g} times is not more than 1 and at most {_MOST_FACTOR:g}.", example)
    if match["when"] is None and action != SLOW:
        raise UsageError(f"--{action} {text!r} does not say when.", f"Add @ and one of {MOMENTS}.")
    moment = _parse_moment(action, text, match["when"] or "0s")
    return DrillFault(action, victim, int(match["number"] or 0), moment, match["step"] or "", factor)


def parse_full_disk(text: str) -> DrillFault:
    """Read ``[STEP:]SECONDSs@WHEN``: how long the disk is full, and from when on; raises UsageError."""
    match = _FULL_DISK.fullmatch(text)
    if match is None or float(match["seconds"]) == 0:
        example = "For example: --full-disk 5s@step=40, or --full-disk train:5s@50%."
        raise UsageError(f"--full-disk {text!r} is not [STEP:]SECONDSs@WHEN.", example)
    moment = _parse_moment(FULL_DISK, text, match["when"])
    return DrillFault(FULL_DISK, ALL, 0, moment, match["step"] or "", seconds=float(match["seconds"]))


def _parse_moment(action: str, text: str, when: str) -> FaultMoment:
    match = _MOMENT.fullmatch(when)
    if match is None:
        raise UsageError(f"--{action} {text!r}: {when!r} is no moment.", f"The moments are {MOMENTS}.")
    if match["at"] is not None:
        if int(match["at"]) == 0:
            raise UsageError(f"--{action} {text!r}: steps are counted from 1.", "Before the first: @0s.")
        return FaultMoment(AT_STEP, float(match["at"]))
    if match["seconds"] is not None:
        return FaultMoment(AT_SECONDS, float(match["seconds"]))
    if match["share"] is not None:
        if float(match["share"]) >= 100:
            raise UsageError(f"--{action} {text!r}: at {when} the step has ended.", "Choose less than 100%.")
        return FaultMoment(AT_SHARE, float(match["share"]))
    return FaultMoment(match["name"])


def place_fault(fault: DrillFault, steps: Mapping[str, PlannedStep], asked: Sequence[str] = ()) -> DrillFault:
    """The fault with the name of its step; it strikes one of these, of which some may have been ``asked`` for.

    Raises:
        UsageError: it could be several steps, the step has no such rank or node, or its ranks cannot be struck here.
    """
    name = fault.step or step_to_strike(steps, asked, fault)
    step, option = steps.get(name), f"--{fault.action} {fault}"
    if step is None:
        raise UsageError(f"{option}: {name!r} is no step.", f"The steps are {', '.join(steps)}.")
    if step.kind in ("sweep", "if_else"):
        what = "its trials are steps of their own" if step.kind == "sweep" else "it runs nothing"
        raise UsageError(f"{option}: {name} is of the kind {step.kind}: {what}.", "Choose a step that has ranks.")
    if fault.victim == LAUNCHER and not has_launcher(step):
        what = "nothing but the engine starts its ranks: neither mpirun, nor a torchrun in its command"
        raise UsageError(f"{option}: {name} has no launcher of its own, {what}.", "Choose rank=N, node=N or engine.")
    count = {RANK: step.ranks + step.parameter_servers, NODE: step.nodes, LAUNCHER: step.nodes}.get(fault.victim)
    if count is not None and fault.number >= count:
        more = f"--scale {name}=NODESxPROCESSES gives it others."
        raise UsageError(f"{option}: {name} has {with_count(count, fault.victim)}, counted from 0.", more)
    return replace(fault, step=name)


def has_launcher(step: PlannedStep) -> bool:
    """Whether the ranks of a step are started by a program of their own on each node: mpirun, or one in its command."""
    return step.distribution == "mpi" or bool(_LAUNCHERS.search(step.component.command))


def step_to_strike(steps: Mapping[str, PlannedStep], asked: Sequence[str] = (), fault: DrillFault | None = None) -> str:
    """The only step that there is, that was asked for, or that has several ranks; raises UsageError without one."""
    ranked = [name for name, step in steps.items() if step.ranks > 1]
    named = next((names for names in (list(steps), list(asked), ranked) if len(names) == 1), None)
    if named is None and fault is None:
        raise UsageError(f"it could be several steps: {', '.join(steps)}.", "Name one: --steps STEP.")
    if named is None and fault is not None:
        example = replace(fault, step=(ranked or list(steps))[0])
        message = f"--{fault.action} {fault} names no step, and it could be several."
        raise UsageError(message, f"Write --{fault.action} {example}. Steps: {', '.join(steps)}.")
    assert named is not None  # noqa: S101 both cases are above
    return named[0]

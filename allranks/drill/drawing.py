"""Faults by chance: whom they strike and when, the same for the same seed and the same undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from allranks.drill.faults import (
    AT_CHECKPOINT,
    AT_SAVE,
    AT_SHARE,
    AT_STEP,
    ENGINE,
    KILL,
    NODE,
    RANK,
    SLOW,
    STOP,
    DrillFault,
    FaultMoment,
)
from allranks.drill.report import UndisturbedStep
from allranks.local.plan import PlannedStep

_KINDS = {
    (KILL, RANK, False): 8,
    (KILL, NODE, False): 3,
    (KILL, ENGINE, False): 3,
    (KILL, RANK, True): 2,
    (STOP, RANK, False): 3,
    (SLOW, RANK, False): 1,
}
"""How often a fault is drawn, by action, victim and whether it damages the newest checkpoint."""
_SHARES = (5, 95)  # per cent of the undisturbed time
_FACTORS = (2, 5)  # times slower: a drill has to come to an end
MOST_DRILLS = 10_000


def draw_faults(
    count: int, seed: int, steps: Mapping[str, PlannedStep], undisturbed: Sequence[UndisturbedStep]
) -> Iterator[DrillFault]:
    """So many faults, one after the other; the steps struck are those of the undisturbed run."""
    source = random.Random(seed)  # noqa: S311 drawn to be drawn again
    for _ in range(count):
        one = source.choice(undisturbed)
        planned = steps[one.name]
        action, victim, corrupts = source.choices(list(_KINDS), weights=list(_KINDS.values()))[0]
        number = source.randrange({RANK: planned.ranks, NODE: planned.nodes, ENGINE: 1}[victim])
        moment = _draw_moment(source, one, saves=bool(one.outputs), corrupts=corrupts)
        factor = float(source.randint(*_FACTORS)) if action == SLOW else 1.0
        yield DrillFault(action, victim, number, moment, one.name, factor, corrupts and bool(one.outputs))


def _draw_moment(source: random.Random, step: UndisturbedStep, *, saves: bool, corrupts: bool) -> FaultMoment:
    """A moment that this step has; what damages a checkpoint mostly comes after one."""
    kinds = [AT_SHARE]
    if step.trained_steps is not None and step.trained_steps > 1:
        kinds += [AT_STEP, AT_STEP, AT_STEP]
    if saves and step.trained_steps is not None:  # others may write nothing before their end
        kinds += [AT_CHECKPOINT, AT_CHECKPOINT, AT_SAVE]
    kind = AT_CHECKPOINT if corrupts and saves and step.trained_steps is not None else source.choice(kinds)
    if kind == AT_STEP:
        return FaultMoment(kind, float(source.randint(1, max(1, (step.trained_steps or 1) - 1))))
    if kind == AT_SHARE:
        return FaultMoment(kind, float(source.randint(*_SHARES)))
    return FaultMoment(kind)

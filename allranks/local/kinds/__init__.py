"""The kinds of steps: one file for each, and a line in the table. Nested pipelines are none: planning lays them flat.

A kind of step adds here how it is planned and run, and its reader to ``allranks/spec``; the engine, the cache, the dry
run and the page know no kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.execution import RunContext, StepExecution
from allranks.local.kinds.command import COMMAND_KIND
from allranks.local.kinds.kind import StepKind
from allranks.local.kinds.sweep import SWEEP_KIND
from allranks.local.plan import PlannedStep
from allranks.spec import Step

STEP_KINDS: Mapping[str, StepKind] = {
    "sweep": SWEEP_KIND,
    "command": COMMAND_KIND,  # last: it fits whatever no other kind does
}


def step_kind(step: Step) -> StepKind:
    """The kind of a step that is no pipeline."""
    return next(kind for kind in STEP_KINDS.values() if kind.fits(step))


def new_execution(step: PlannedStep, context: RunContext) -> StepExecution:
    """The execution of a planned step in a run."""
    return STEP_KINDS[step.kind].execution(step, context)

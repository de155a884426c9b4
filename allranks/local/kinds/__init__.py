"""The kinds of steps: one file for each, and a line in the table. Nested pipelines are none: planning lays them flat.

A kind of step adds here how it is planned and run, and its reader to ``allranks/spec``; the engine, the cache, the dry
run and the page know no kinds.
"""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.execution import Execution, RunContext
from allranks.local.kinds.command import COMMAND
from allranks.local.kinds.kind import StepKind
from allranks.local.kinds.sweep import SWEEP
from allranks.local.plan import PlannedStep
from allranks.spec import Step

KINDS: Mapping[str, StepKind] = {
    "sweep": SWEEP,
    "command": COMMAND,  # last: it fits whatever no other kind does
}


def kind_of(step: Step) -> StepKind:
    """The kind of a step that is no pipeline."""
    return next(kind for kind in KINDS.values() if kind.fits(step))


def execution_of(step: PlannedStep, context: RunContext) -> Execution:
    """The execution of a planned step in a run."""
    return KINDS[step.kind].execution(step, context)

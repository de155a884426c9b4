"""A sweep step: trials of its component's command, each with other values of the inputs that are searched."""

from __future__ import annotations

from allranks.local.bindings import PipelineScope
from allranks.local.execution import Execution, RunContext
from allranks.local.kinds.command import plan_command
from allranks.local.kinds.kind import StepKind
from allranks.local.plan import PlannedStep
from allranks.local.sweep.execution import SweepExecution
from allranks.local.sweep.search import PlannedSweep, SweepSearch, plan_search
from allranks.spec import Component, Step, Sweep


def _plan_sweep(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    """What the trials have in common, and the search."""
    assert step.sweep is not None  # noqa: S101 the kind fits
    common = plan_command(step, component, scope, searched=step.sweep.space)
    return PlannedSweep.from_common(common, _plan_search(step, step.sweep, scope, common.nodes * common.launched))


def _execution(step: PlannedStep, context: RunContext) -> Execution:
    assert isinstance(step, PlannedSweep)  # noqa: S101 _plan_sweep has made it
    return SweepExecution(step, context)


def _plan_search(step: Step, sweep: Sweep, scope: PipelineScope, ranks: int) -> SweepSearch:
    """What a sweep step tries; a choice among mappings or among data is more than its trials can be given here."""
    for name, one in sweep.space.items():
        declared = step.component.inputs.get(name)
        values = one.get("values")
        mapped = isinstance(values, list) and any(isinstance(value, dict) for value in values)
        if mapped or (declared is not None and declared.is_data):
            what = "a choice among mappings" if mapped else f"a search over {declared.type if declared else ''} inputs"
            scope.refuse(step, f"cannot run here: {name!r} is {what}.")

    def limit(key: str) -> int | None:
        return scope.count(sweep.limits[key], key, step) if key in sweep.limits else None

    return plan_search(sweep, ranks, limit)


SWEEP_KIND = StepKind(fits=lambda step: step.sweep is not None, plan=_plan_sweep, execution=_execution)

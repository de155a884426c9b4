"""A sweep step: trials of its component's command, each with other values of the inputs that are searched."""

from __future__ import annotations

from importlib.util import find_spec

from allranks.errors import CannotRunHereError
from allranks.local.bindings import PipelineScope
from allranks.local.kinds import StepKind
from allranks.local.kinds.command import plan_command
from allranks.local.machine import usable_cores
from allranks.local.plan import PlannedStep
from allranks.local.sweep.execution import SweepExecution
from allranks.local.sweep.search import PlannedSweep, SweepSearch
from allranks.spec import Component, Step, Sweep
from allranks.spec.steps.sweep import MOST_TRIALS

_PACKAGES = {"sobol": "scipy", "bayesian": "optuna"}


def _plan_sweep(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    """What the trials have in common, and the search."""
    assert step.sweep is not None  # noqa: S101 its reader has read one
    common = plan_command(step, component, scope, searched=step.sweep.space)
    search = _plan_search(step, step.sweep, scope, common.nodes * common.launched)
    return PlannedSweep(**common.attributes, search=search)


def _plan_search(step: Step, sweep: Sweep, scope: PipelineScope, ranks: int) -> SweepSearch:
    """What a sweep step tries, its counts settled; no more trials at a time than there are cores for their ranks."""
    _check_space(step, sweep, scope)

    def limit(key: str) -> int | None:
        return scope.count(sweep.limits[key], key, step) if key in sweep.limits else None

    needed = _PACKAGES.get(sweep.algorithm)
    if needed is not None and find_spec(needed) is None:
        message = f"{sweep.algorithm} sampling needs {needed}, which is not installed."
        raise CannotRunHereError(message, f"Install it: pip install {needed}")
    trials = limit("max_total_trials") or MOST_TRIALS  # what Azure ML takes where the YAML is silent
    goal, metric = sweep.objective
    return SweepSearch(
        algorithm=sweep.algorithm,
        seed=sweep.seed or 0,
        log_base=sweep.log_base,
        space=sweep.space,
        goal=goal,
        metric=metric,
        trials=trials,
        at_once=min(limit("max_concurrent_trials") or trials, max(1, usable_cores() // ranks)),
        timeout=limit("timeout"),
        trial_timeout=limit("trial_timeout"),
        policy=sweep.early_termination,
    )


def _check_space(step: Step, sweep: Sweep, scope: PipelineScope) -> None:
    """A choice among mappings or among data is more than a trial can be given here."""
    for name, one in sweep.space.items():
        declared = step.component.inputs.get(name)
        values = one.get("values")
        mapped = isinstance(values, list) and any(isinstance(value, dict) for value in values)
        if mapped or (declared is not None and declared.is_data):
            what = "a choice among mappings" if mapped else f"a search over {declared.type if declared else ''} inputs"
            scope.refuse(step, f"cannot run here: {name!r} is {what}.")


STEP_KIND = StepKind(_plan_sweep, SweepExecution)

"""From a pipeline and what was asked for to the plan; every mistake is found here, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from allranks.errors import Problem, SpecError, UnknownNameError
from allranks.local.assets import Stands
from allranks.local.folders import Home
from allranks.local.heavy import heavy_snapshots
from allranks.local.plan import Plan
from allranks.local.planning import make_plan
from allranks.local.requirements import choose_interpreters
from allranks.local.settings import apply_scale, apply_values
from allranks.spec import Pipeline, check, check_machines


def prepare(
    pipeline: Pipeline,
    home: Home,
    stands: Stands,
    *,
    values: Mapping[str, str],
    scale: Mapping[str, tuple[int, int]],
    only: Sequence[str] = (),
    pythons: Mapping[str, Path] | None = None,
) -> Plan:
    """Apply values and scale, check, resolve, and choose each step's interpreter.

    Args:
        pipeline: as read.
        home: the folder of runs.
        stands: what stands for data in the cloud.
        values: ``epochs``, ``group.name``, ``step.input`` to the value as text.
        scale: step to nodes and processes per node.
        only: these steps and those that they need; all if empty.
        pythons: step to the interpreter that the user chose.

    Raises:
        SpecError: with everything that is wrong.
        AllranksError: a name among the arguments is unknown, or a count is wrong.
    """
    pipeline, problems = apply_values(pipeline, values)
    machines = check_machines(pipeline)  # before --scale, which is for here; and only notes: this machine is another
    pipeline = apply_scale(pipeline, scale)
    problems += check(pipeline, values={})
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise SpecError(errors)
    plan = make_plan(pipeline, stands)
    if only:
        plan = plan.only(only)
    chosen = dict(pythons or {})
    for name in chosen.keys() - plan.steps.keys():
        raise UnknownNameError(f"--python: {name!r} is no step. The steps are {', '.join(plan.steps)}.")
    interpreters = choose_interpreters(plan.steps, home.path, chosen)
    steps = {name: replace(step, python=interpreters.pythons.get(name)) for name, step in plan.steps.items()}
    heavy = heavy_snapshots(step.component for step in steps.values())
    warnings = tuple(_text(problem) for problem in (*problems, *machines, *heavy))
    notes = (*warnings, *interpreters.notes, *plan.notes)
    return Plan(plan.name, steps, plan.outputs, plan.continue_on_failure, plan.force_rerun, notes)


def _text(problem: Problem) -> str:
    return str(problem).removeprefix(f"{Path.cwd()}/")

"""The kinds of steps: a file for each that ``allranks.spec.steps`` reads, of the same name, imported when it is needed.

Nested pipelines have none: planning lays them flat. A kind says here how it is planned and run; all else about a step
that runs (its key, how it starts or resumes, its parts, what is reported of it and what a dry run shows) is asked of
its ``StepExecution``. Steps that run as ranks have ``GangExecution``; a kind that runs such steps as its parts, as a
sweep its trials, has an execution of its own. The engine, the cache, the dry run and the page know no kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from allranks.local.bindings import PipelineScope
from allranks.local.execution import StepExecution
from allranks.local.plan import PlannedStep
from allranks.local.run_context import RunContext
from allranks.spec import Component, Step


@dataclass(frozen=True, slots=True)
class StepKind:
    """How a step of a component is planned, what is wrong going to the scope's findings, and what runs it then."""

    plan: Callable[[Step, Component, PipelineScope], PlannedStep]
    execution: Callable[[PlannedStep, RunContext], StepExecution]


def step_kind(name: str) -> StepKind:
    """The kind with this name in the table of ``allranks.spec.steps``."""
    kind: StepKind = import_module(f"{__name__}.{name}").STEP_KIND
    return kind


def new_execution(step: PlannedStep, context: RunContext) -> StepExecution:
    """The execution of a planned step in a run."""
    return step_kind(step.kind).execution(step, context)

"""What each kind of step says of itself: which steps are of it, how they are planned, and what runs them.

All else about a running step (its key, how it starts or resumes, its parts, what is reported of it and what a dry run
shows) is asked of its ``StepExecution``. Steps that run as ranks have ``GangExecution``; a kind that runs such steps as
its parts, as a sweep its trials, has an execution of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from allranks.local.bindings import PipelineScope
from allranks.local.execution import RunContext, StepExecution
from allranks.local.plan import PlannedStep
from allranks.spec import Component, Step


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of step.

    Attributes:
        fits: whether a step of a pipeline is of this kind.
        plan: the step, of this component, with everything resolved; what is wrong goes to the scope's findings.
        execution: what runs a step that ``plan`` has planned.
    """

    fits: Callable[[Step], bool]
    plan: Callable[[Step, Component, PipelineScope], PlannedStep]
    execution: Callable[[PlannedStep, RunContext], StepExecution]

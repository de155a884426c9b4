"""What each kind of step says of itself: which steps are of it, how they are planned, and what runs them.

All else about a running step (its key, how it starts or goes on where an earlier run left off, its parts, what is
reported of it and what a dry run shows) is asked of its ``Execution``. A kind whose steps run as ranks takes
``GangExecution``; one that runs such steps as its parts, as a sweep its trials, has an execution of its own.
"""

from __future__ import annotations

from typing import Protocol

from allranks.local.bindings import PipelineScope
from allranks.local.execution import Execution, RunContext
from allranks.local.plan import PlannedStep
from allranks.spec import Component, Step


class StepKind(Protocol):
    """A kind of step."""

    def fits(self, step: Step) -> bool:
        """Whether a step of a pipeline is of this kind."""

    def plan(self, step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
        """The step with everything resolved; what is wrong with it goes to the scope's findings.

        Args:
            step: as it was read and checked.
            component: the step's.
            scope: what its bindings mean.
        """

    def execution(self, step: PlannedStep, context: RunContext) -> Execution:
        """What runs a step that ``plan`` has planned."""

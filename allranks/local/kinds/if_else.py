"""A step that decides which others run: it starts nothing, and takes no core and no time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks.local import fingerprint
from allranks.local.bindings import PipelineScope, planned_value
from allranks.local.cache import FinishedStep, StepCache
from allranks.local.execution import StepExecution
from allranks.local.guard import ProcessGuard
from allranks.local.kinds import StepKind
from allranks.local.plan import PlannedStep
from allranks.local.result import RUNNING, SUCCEEDED, StepFailure
from allranks.spec import Component, Step, check_value
from allranks.spec.steps.if_else import CONDITION


def _plan_if_else(step: Step, component: Component, scope: PipelineScope) -> PlannedStep:
    """The condition, resolved; it has no ranks."""
    found = scope.resolve_inputs(step)[CONDITION]
    if isinstance(found, str):  # of an input that is a text, such as "true"
        typed = check_value(component.inputs[CONDITION], found)
        found = typed if isinstance(typed, bool) else None
    if found is None:
        scope.refuse(step, "its condition has no value that is true or false.")
    inputs = {} if found is None else {CONDITION: planned_value(found)}
    return PlannedStep(
        kind=step.kind,
        name=scope.prefix + step.name,
        component=component,
        inputs=MappingProxyType(inputs),
        outputs=MappingProxyType({}),
        distribution=None,
        nodes=0,
        processes=0,
        environment_variables=MappingProxyType({}),
        timeout=None,
    )


class DecidingExecution(StepExecution):
    """The state of a step that decides; by the time that it begins its condition is a literal."""

    def identify(self, upstream: Mapping[str, FinishedStep], more: Mapping[str, Any] | None = None) -> str:  # noqa: ARG002
        """A key of this run alone: the decision is taken anew in each, from the outputs that are there then."""
        return fingerprint.json_digest([self.context.run.id, self.step.name])

    def begin(self, data: Mapping[str, Path], guard: ProcessGuard, *, fresh: bool) -> StepFailure | None:  # noqa: ARG002
        """Decide."""
        self.attempts = 1
        self._started = time.monotonic()
        self.status = RUNNING
        self.decision = self.step.literals[CONDITION] == str(True)
        return None

    @property
    def is_settled(self) -> bool:
        """Whether it has decided, which it does at once."""
        return self.status == RUNNING

    def conclude(self, records: StepCache, retries: int | None) -> None:  # noqa: ARG002 nothing is kept and nothing can fail
        """End it."""
        assert self.workplace is not None  # noqa: S101 the engine acquired it
        self.workplace.discard()
        self.end(SUCCEEDED)

    def preview(self, published: Mapping[str, Path], finished: FinishedStep | None) -> dict[str, Any]:  # noqa: ARG002
        """What it decides by."""
        return {
            "status": "planned",
            "component": self.step.component.name,
            "inputs": {name: str(value) for name, value in self.step.inputs.items()},
            "input_sources": self.step.source_documents,
            "nodes": 0,
            "processes": 0,
            "after": list(self.step.after),
            **({"when": dict(self.step.chosen_by)} if self.step.chosen_by else {}),
            "reused": False,
            "reused_from": None,
        }


STEP_KIND = StepKind(_plan_if_else, DecidingExecution)

"""What the ``${{ }}`` of one step name: the pipeline's inputs, other steps' inputs and outputs, the search space."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from allranks.errors import Problem
from allranks.spec.expressions import STEP_INPUT_SCOPE, Reference
from allranks.spec.model import Input, Pipeline, Step
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import Values, check_value, resolved_value


@dataclass(frozen=True, slots=True)
class StepBindings:
    """One step of a pipeline, with the values of the pipeline's inputs that are known."""

    pipeline: Pipeline
    step: Step
    known: Values

    @property
    def place(self) -> str:
        """Where the step stands in its pipeline."""
        return f"jobs.{self.step.name}"

    def wrong(self, where: str, message: str, hint: str = "", severity: str = "error") -> Problem:
        """Make a problem about a key of the step; empty for the step as a whole."""
        return self.pipeline.source.problem(f"{self.place}.{where}".rstrip("."), message, hint, severity)

    def unknown(self, where: str, message: str, name: str, known: Iterable[str], plural: str) -> Problem:
        """Make a problem about a name that is none of those that are known."""
        return self.wrong(where, message, did_you_mean(name, known, plural))

    def count(self, value: float | str | None) -> float | str | None:
        """Return a count, a binding resolved where the pipeline's value is known."""
        known = resolved_value(value, self.known)
        typed = None if known is None or known == value else check_value(Input("", "integer"), known)
        return typed if isinstance(typed, int) else value

    def check(self, reference: Reference, where: str, *, in_inputs: bool = False) -> Iterator[Problem]:
        """Check that what a binding names is there; ``in_inputs`` for one that stands at an input of the step."""
        name, inputs, sweep = reference.name, self.pipeline.inputs, self.step.sweep
        if reference.scope == "parent.inputs":
            if name not in inputs:
                message = f"{reference}: the pipeline has no input '{name}'."
                yield self.unknown(where, message, name, inputs, "inputs")
        elif reference.scope in ("parent.jobs", STEP_INPUT_SCOPE):
            yield from self._check_other_step(reference, where)
        elif reference.scope == "search_space" and sweep is not None and in_inputs:
            if name not in sweep.space:
                message = f"{reference}: the search space has no '{name}'."
                yield self.unknown(where, message, name, sweep.space, "names")
        elif reference.scope == "inputs":
            message = f"{reference} is for a command; a step binds the pipeline's inputs."
            yield self.wrong(where, message, f"Write ${{{{parent.inputs.{name}}}}}.")
        elif not reference.scope and name.startswith("jobs."):
            yield self.wrong(where, f"{reference} misses 'parent'.", f"Write ${{{{parent.{name}}}}}.")
        else:
            hint = "Write ${{parent.inputs.NAME}} or ${{parent.jobs.STEP.outputs.NAME}}."
            yield self.wrong(where, f"{reference} means nothing in a step's inputs.", hint)

    def _check_other_step(self, reference: Reference, where: str) -> Iterator[Problem]:
        name, steps = reference.name, self.pipeline.steps
        other = steps.get(reference.step)
        if other is None:
            message = f"{reference}: there is no step '{reference.step}'."
            yield self.unknown(where, message, reference.step, steps, "steps")
        elif reference.scope == STEP_INPUT_SCOPE:
            yield from self._check_not_borrowed(reference, other, where)
        elif other.has_component and name not in other.component.outputs:
            message = f"{reference}: step '{reference.step}' has no output '{name}'."
            yield self.unknown(where, message, name, other.component.outputs, "outputs")

    def _check_not_borrowed(self, reference: Reference, lender: Step, where: str) -> Iterator[Problem]:
        """Say why a value of another step could not be taken: where it can, it has been since the reading."""
        name = reference.name
        if name in lender.inputs:
            yield self.wrong(where, f"{reference} leads back to itself.", "Write the value at one of the steps.")
        elif lender.has_component and name not in lender.component.inputs:
            message = f"{reference}: step '{reference.step}' has no input '{name}'."
            yield self.unknown(where, message, name, lender.component.inputs, "inputs")
        elif lender.has_component:
            message = f"{reference}: step '{reference.step}' is given nothing there."
            yield self.wrong(where, message, f"Give step '{reference.step}' a value, or write one here.")

"""``${{parent.jobs.STEP.inputs.NAME}}``: a step is given what another step is given.

It is replaced where a pipeline is read, so that nobody else has to know of it, and no step waits for another because of
it. The source is https://learn.microsoft.com/azure/machine-learning/reference-yaml-core-syntax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.spec.expressions import (
    STEP_INPUT_SCOPE,
    Reference,
    find_references,
    literal_text,
    replace_references,
    single_reference,
)
from allranks.spec.model import Data, Literal, Step


def resolve_borrowed_inputs(steps: Mapping[str, Step]) -> dict[str, Step]:
    """Give the steps what they borrow; a reference to what is not there, or to itself, stays as it is written."""

    def settled(value: Literal | Data, seen: tuple[Reference, ...] = ()) -> Literal | Data:
        if isinstance(value, Data):
            lent = settled(value.path, seen)
            if isinstance(lent, Data):
                return Data(lent.path, value.type or lent.type, value.mode or lent.mode)
            return replace(value, path=lent) if isinstance(lent, str) else value
        if not isinstance(value, str) or all(one.scope != STEP_INPUT_SCOPE for one in find_references(value)):
            return value
        reference = single_reference(value)
        return (
            replace_references(value, lambda one: in_text(one, seen)) if reference is None else lent_by(reference, seen)
        )

    def lent_by(reference: Reference, seen: tuple[Reference, ...]) -> Literal | Data:
        step = steps.get(reference.step) if reference.scope == STEP_INPUT_SCOPE and reference not in seen else None
        if step is None:
            return str(reference)
        if reference.name in step.inputs:
            return settled(step.inputs[reference.name], (*seen, reference))
        declared = step.component.inputs.get(reference.name)
        return str(reference) if declared is None or declared.default is None else declared.default

    def in_text(reference: Reference, seen: tuple[Reference, ...]) -> str:
        lent = lent_by(reference, seen)
        return str(reference) if isinstance(lent, Data) else literal_text(lent)

    return {
        name: replace(step, inputs=MappingProxyType({port: settled(value) for port, value in step.inputs.items()}))
        for name, step in steps.items()
    }

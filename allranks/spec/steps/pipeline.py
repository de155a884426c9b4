"""A step that is a pipeline of its own."""

from __future__ import annotations

from allranks.spec import schema
from allranks.spec.steps.kind import StepKind

_INSIDE = dict.fromkeys(schema.COMPONENT_STEP | schema.SWEEP_STEP, "write it on the steps of the inner pipeline.")

PIPELINE = StepKind(
    name="pipeline",
    keys=schema.PIPELINE_STEP,
    noun="a pipeline step",
    ignored=_INSIDE,
    is_nested=True,
    other_component="Write type: command.",
)

"""A step that is a pipeline of its own."""

from __future__ import annotations

from allranks.spec import schema
from allranks.spec.steps.kind import StepReader

_INSIDE = dict.fromkeys(schema.COMPONENT_STEP | schema.SWEEP_STEP, "write it on the steps of the inner pipeline.")

PIPELINE_READER = StepReader(
    "pipeline", schema.PIPELINE_STEP, "a pipeline step", _INSIDE, is_nested=True, other_component="Write type: command."
)

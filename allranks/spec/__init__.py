"""What Azure ML's YAML says: read, check, and the ``${{ }}`` expressions; no SDK, no torch."""

from __future__ import annotations

from allranks.spec.check import check_document
from allranks.spec.check_compute import check_compute
from allranks.spec.check_designer import check_designer
from allranks.spec.check_machines import Compute, check_machines
from allranks.spec.check_quotes import check_quotes
from allranks.spec.expressions import Reference, find_references, literal_text, replace_references, single_reference
from allranks.spec.model import Component, Data, Input, Output, Pipeline, Source, Step, Sweep
from allranks.spec.needs import Distribution, Resources
from allranks.spec.read import component_from, pipeline_from, read_component, read_pipeline, read_spec
from allranks.spec.values import check_value

__all__ = [
    "Component",
    "Compute",
    "Data",
    "Distribution",
    "Input",
    "Output",
    "Pipeline",
    "Reference",
    "Resources",
    "Source",
    "Step",
    "Sweep",
    "check_compute",
    "check_designer",
    "check_document",
    "check_machines",
    "check_quotes",
    "check_value",
    "component_from",
    "find_references",
    "literal_text",
    "pipeline_from",
    "read_component",
    "read_pipeline",
    "read_spec",
    "replace_references",
    "single_reference",
]

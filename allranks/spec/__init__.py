"""What Azure ML's YAML says: read, check, and the ``${{ }}`` expressions; no SDK, no torch."""

from __future__ import annotations

from allranks.spec.check import check, check_command_values, check_value
from allranks.spec.check_designer import check_designer
from allranks.spec.check_machines import Compute, check_machines
from allranks.spec.check_quotes import check_quotes
from allranks.spec.document import read_document
from allranks.spec.expressions import Reference, literal_text, references, render_command, single, substitute
from allranks.spec.graph import step_dependencies
from allranks.spec.model import (
    Component,
    Data,
    Distribution,
    Environment,
    Input,
    Output,
    Pipeline,
    Resources,
    Settings,
    Source,
    Step,
    Sweep,
)
from allranks.spec.read import component_from, pipeline_from, read, read_component, read_pipeline

__all__ = [
    "Component",
    "Compute",
    "Data",
    "Distribution",
    "Environment",
    "Input",
    "Output",
    "Pipeline",
    "Reference",
    "Resources",
    "Settings",
    "Source",
    "Step",
    "Sweep",
    "check",
    "check_command_values",
    "check_designer",
    "check_machines",
    "check_quotes",
    "check_value",
    "component_from",
    "literal_text",
    "pipeline_from",
    "read",
    "read_component",
    "read_document",
    "read_pipeline",
    "references",
    "render_command",
    "single",
    "step_dependencies",
    "substitute",
]

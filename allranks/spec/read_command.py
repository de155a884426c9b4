"""Command components and command jobs, and the part that they share with a command written on a step."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from allranks.spec import ports, schema, settings
from allranks.spec.model import Component
from allranks.spec.section import Section
from allranks.spec.spelling import respell_references
from allranks.spec.standalone import job_name

_NEEDED = ("name", "command", "environment")
_ON_THE_STEP = dict.fromkeys(schema.COMMAND_JOB - schema.COMMAND_COMPONENT, "write it on the pipeline's step.")


def read_command_document(top: Section, name: str) -> Component:
    """Read a component, or a command job as one whose inputs have their values as defaults."""
    # The schema is for editors: a nameless document that says where it runs is a job all the same.
    job = "commandjob" in top.text("$schema").lower() or ("name" not in top and "compute" in top)
    if job:
        top.known(schema.COMMAND_JOB, "a command job")
        settings.check_cloud_keys(top)
        name = job_name(top)
        inputs = ports.read_valued_inputs(top.mapping("inputs"), schema.JOB)
    else:
        top.known(
            schema.COMMAND_COMPONENT, "a component", _ON_THE_STEP, is_open=True, needed=_NEEDED, unchecked=("type",)
        )
        inputs = ports.read_declared_inputs(top.mapping("inputs"))
    outputs = ports.read_outputs(top.mapping("outputs"), schema.JOB if job else schema.COMPONENT)
    component = read_command(top, name, is_open=not job)
    command = respell_references(top, "command", component.command, "inputs", inputs)
    component = replace(component, command=command, inputs=MappingProxyType(inputs), outputs=MappingProxyType(outputs))
    if job:
        variables = settings.read_variables(top)
        component = replace(component, environment_variables=variables, timeout=settings.read_timeout(top))
    return component


def read_command(section: Section, name: str, *, is_open: bool = False) -> Component:
    """Read what a component, a command job and an inline command have in common: all but inputs and outputs.

    ``is_open``: whether Azure ML ignores unknown keys of its parts, as it does in a component.
    """
    return Component(
        **settings.read_asset(section, name),
        command=section.text("command"),
        code=settings.read_code(section, is_component=is_open),
        includes=settings.read_includes(section),
        environment=settings.read_environment(section),
        distribution=settings.read_distribution(section, is_open=is_open),
        resources=settings.read_resources(section, is_open=is_open),
        tier=settings.read_tier(section),
    )

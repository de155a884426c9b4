"""Command components and command jobs, and the part that they share with a command written on a step."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from allranks.spec import ports, schema, settings
from allranks.spec.model import Component
from allranks.spec.section import Section
from allranks.spec.standalone import job_name

_ON_THE_STEP = dict.fromkeys(schema.COMMAND_JOB - schema.COMMAND_COMPONENT, "write it on the pipeline's step.")


def read_command_document(top: Section, name: str) -> Component:
    """Read a component, or a command job as one whose inputs have their values as defaults."""
    # The schema is for editors: a nameless document that says where it runs is a job all the same.
    job = "commandjob" in top.text("$schema").lower() or ("name" not in top and "compute" in top)
    if job:
        top.known(schema.COMMAND_JOB, "a command job")
        name = job_name(top)
        inputs = ports.read_valued_inputs(top.mapping("inputs"))
    else:
        top.known(schema.COMMAND_COMPONENT, "a component", _ON_THE_STEP)
        inputs = ports.read_declared_inputs(top.mapping("inputs"))
    outputs = ports.read_outputs(top.mapping("outputs"), typed=not job)
    component = read_command(top, name)
    component = replace(component, inputs=MappingProxyType(inputs), outputs=MappingProxyType(outputs))
    if job:
        variables = settings.read_variables(top)
        component = replace(component, environment_variables=variables, timeout=settings.read_timeout(top))
    return component


def read_command(section: Section, name: str) -> Component:
    """Read what a component, a command job and an inline command have in common: all but inputs and outputs."""
    return Component(
        name=name,
        source=replace(section.source, prefix=section.where, problems=()),
        version=settings.read_version(section),
        display_name=section.text("display_name"),
        description=section.text("description"),
        tags=MappingProxyType(section.texts("tags")),
        command=section.text("command"),
        code=settings.read_code(section),
        includes=settings.read_includes(section),
        environment=settings.read_environment(section),
        distribution=settings.read_distribution(section),
        resources=settings.read_resources(section),
        is_deterministic=section.flag("is_deterministic") is not False,
        tier=settings.read_tier(section),
    )

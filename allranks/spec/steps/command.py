"""A step that runs one command: a component's, or one that stands on the step itself."""

from __future__ import annotations

from dataclasses import replace

from allranks.spec import schema
from allranks.spec.model import Step
from allranks.spec.read_command import read_command
from allranks.spec.section import Section
from allranks.spec.spelling import respell_references
from allranks.spec.steps.kind import FindComponent, StepReader, inline_step

_IN_THE_COMPONENT = dict.fromkeys(("environment", "command", "code"), "the component's own counts.")


class _CommandReader(StepReader):
    def read(self, section: Section, name: str, find: FindComponent) -> Step:
        """Read either; a misspelt ``component`` or ``command`` is seen first."""
        if not section.data.keys() & {"component", "command"}:
            section.known(schema.COMPONENT_STEP | schema.INLINE_STEP, "a step")
        is_inline = "component" not in section and "command" in section
        return _read_inline(section, name) if is_inline else super().read(section, name, find)


def _read_inline(section: Section, name: str) -> Step:
    """Read a step with its command in place; ``infer_port_types`` gives its component the inputs and outputs."""
    section.known(schema.INLINE_STEP, "a step with a command")
    component = read_command(section, name)
    step = inline_step(section, name, component, COMMAND_READER.name)
    command = respell_references(section, "command", component.command, "inputs", step.inputs)
    return replace(step, component=replace(component, command=command))


COMMAND_READER = _CommandReader(
    name="command",
    keys=schema.COMPONENT_STEP - _IN_THE_COMPONENT.keys(),
    noun="a step",
    ignored=_IN_THE_COMPONENT,
    without_component=" and no 'command'",
)

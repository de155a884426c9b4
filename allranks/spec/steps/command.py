"""A step that runs one command: a component's, or one that stands on the step itself."""

from __future__ import annotations

from dataclasses import replace

from allranks.spec import schema
from allranks.spec.expressions import find_references
from allranks.spec.model import Step
from allranks.spec.read_command import read_command
from allranks.spec.section import Section
from allranks.spec.spelling import respell_references
from allranks.spec.steps.kind import FindComponent, StepReader, inline_step

_COUNTS = {
    "resources": ("instance_count",),
    "limits": ("timeout",),
    "distribution": ("process_count_per_instance", "worker_count", "parameter_server_count"),
}
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
    _refuse_bound_counts(section)
    step = inline_step(section, name, component, COMMAND_READER.name)
    command = respell_references(section, "command", component.command, "inputs", step.inputs)
    return replace(step, component=replace(component, command=command))


def _refuse_bound_counts(section: Section) -> None:
    """Note bindings in numbers, which azure-ai-ml takes where the step names a component."""
    for key, counts in _COUNTS.items():
        inner = section.data.get(key)
        if not isinstance(inner, dict) or section.source.file is None:
            continue
        for count in counts:
            if find_references(str(inner.get(count))):
                message = (
                    f"{inner[count]} is a binding; azure-ai-ml takes a number on a step with its command in place."
                )
                section.wrong(f"{key}.{count}", message, "Move the command to a file, and write component: ./FILE.yml.")


COMMAND_READER = _CommandReader(
    name="command",
    keys=schema.COMPONENT_STEP - _IN_THE_COMPONENT.keys(),
    noun="a step",
    ignored=_IN_THE_COMPONENT,
    without_component=" and no 'command'",
)

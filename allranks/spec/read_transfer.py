"""Components that copy data, and what they have in common with a copy that is written on a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from allranks.errors import Problem
from allranks.spec import ports, schema, settings
from allranks.spec.component_kinds import CopyComponent
from allranks.spec.section import Section, a_or_an, shown_value
from allranks.spec.suggest import did_you_mean

_COPY, _OTHERS = "copy_data", ("import_data", "export_data")
_MODES = ("merge_with_overwrite", "fail_if_conflict")


def read_copy_document(top: Section, name: str) -> CopyComponent | None:
    """Read a component; None for a task that only Azure does."""
    if read_task(top, "a component", "Submit it to Azure.") is None:
        return None
    top.known(schema.COPY_COMPONENT, "a data_transfer component", is_open=True)
    component = read_copy(top, name)
    inputs = ports.read_declared_inputs(top.mapping("inputs"))
    outputs = ports.read_outputs(top.mapping("outputs"), schema.COMPONENT)
    return replace(component, inputs=MappingProxyType(inputs), outputs=MappingProxyType(outputs))


def read_task(section: Section, what: str, elsewhere: str, *, in_any_case: bool = False) -> str | None:
    """Read which task it is, on a step in any case as the SDK does; None for one that cannot run here, or is none."""
    task = section.data.get("task")
    if in_any_case and isinstance(task, str):
        task = task.lower()
    if task == _COPY:
        return _COPY
    if task is None:
        section.wrong("", "states no task.", f"Write task: {_COPY}.")
    elif task in _OTHERS:
        message = f"cannot run here: {what} is a data_transfer of task '{task}'; {_COPY} can."
        section.wrong("task", message, elsewhere, "elsewhere")
    else:
        hint = did_you_mean(str(task), (_COPY, *_OTHERS), "tasks")
        section.wrong("task", f"{shown_value(task)} is no task of a data_transfer.", hint)
    return None


def read_copy(section: Section, name: str) -> CopyComponent:
    """Read what a component and an inline copy have in common: all but inputs and outputs."""
    return CopyComponent(
        **settings.read_asset(section, name),
        # Azure ML's reference of the YAML names no default; the one that loses nothing is taken.
        copy_mode=section.choice("data_copy_mode", _MODES, "modes", str.lower) or "fail_if_conflict",
    )


def check_copy(component: CopyComponent) -> Iterator[Problem]:
    """Check which inputs go into which output."""
    source, inputs, outputs = component.source, list(component.inputs.values()), list(component.outputs.values())
    for one in inputs:
        if not one.is_data:
            yield source.problem(f"inputs.{one.name}", f"is {a_or_an(one.type)}; a data_transfer copies files.")
    if not inputs:
        yield source.problem("inputs", "is empty: a data_transfer copies its inputs.")
    if len(outputs) != 1:
        yield source.problem("outputs", f"has {len(outputs)} outputs; a data_transfer copies into one.")
        return
    given, taken = {one.type for one in inputs}, outputs[0].type or "uri_folder"
    if len(inputs) == 1 and given != {taken}:
        message = f"is {a_or_an(taken)}, and the one input is {a_or_an(given.pop())}; both have to be of one type."
        yield source.problem(f"outputs.{outputs[0].name}", message)
    elif len(inputs) > 1 and taken != "uri_folder":
        message = f"is {a_or_an(taken)}; several inputs go into a uri_folder."
        yield source.problem(f"outputs.{outputs[0].name}", message)

"""Inputs and outputs as YAML writes them: declared by a component, valued by a job, set by a step."""

from __future__ import annotations

from typing import Any

from allranks.spec import schema
from allranks.spec.document import yaml_kind
from allranks.spec.model import DATA_TYPES, LITERAL_TYPES, Data, Input, Literal, Output
from allranks.spec.section import Section
from allranks.spec.suggest import did_you_mean, nearest_name
from allranks.spec.values import sent_default

_TYPES = (*LITERAL_TYPES, *DATA_TYPES)
_OF_THE_PREVIEW = frozenset({"dataset", "data", "file", "folder", "local_path"})
_WRITE_PATH = "Write {type: uri_folder, path: ./data}."


def literal_type(value: Literal) -> str:
    """Return the literal type that Azure ML gives to a bare value."""
    if isinstance(value, bool):
        return "boolean"
    return "integer" if isinstance(value, int) else "number" if isinstance(value, float) else "string"


def read_declared_inputs(section: Section) -> dict[str, Input]:
    """Read a component's inputs: each states its type, and none has a value."""
    inputs = {}
    for name in section:
        value = section.data[name]
        if isinstance(value, dict):
            inputs[name] = _declared(section.mapping(name), name)
        else:
            example = f"Write {name}: {{type: {_example(value)}}}."
            section.wrong(name, f"is a {yaml_kind(value)}; an input of a component states its type.", example)
            inputs[name] = Input(name, default=None if isinstance(value, (list, type(None))) else value)
    return inputs


def _example(value: Any) -> str:
    return "string" if value is None or isinstance(value, list) else f"{literal_type(value)}, default: {value}"


def read_valued_inputs(section: Section, kind: str = schema.EITHER) -> dict[str, Input]:
    """Read a pipeline's or a job's inputs, which have values, declarations or both; the value becomes the default.

    Args:
        section: the ``inputs``.
        kind: whether a job or a component has them, where that is known; the SDK takes declarations from a component
            alone, and values from a job alone.
    """
    if kind == schema.COMPONENT and section.source.file is not None:
        return read_declared_inputs(section)
    inputs = {}
    for name in section:
        value = section.data[name]
        if isinstance(value, list):
            section.wrong(name, "is a list; an input is a text, number, boolean or path.")
            inputs[name] = Input(name)
        elif value is None:
            section.wrong(name, "has no value.", f"Write a value, a path, or {name}: {{type: uri_folder}}.")
            inputs[name] = Input(name, optional=True)
        elif not isinstance(value, dict):
            inputs[name] = Input(name, literal_type(value), value)
        elif "type" in value or not ({"path", "value"} & value.keys()):
            if kind == schema.JOB and "type" in value:
                _check_job_input(section.mapping(name))
            inputs[name] = _declared(section.mapping(name), name, valued=True)
        else:
            inputs[name] = _valued(section.mapping(name), name)
    return inputs


def _check_job_input(section: Section) -> None:
    """Note what a component may say of an input and a job may not: a job gives values, and declares nothing."""
    if section.text("type") in LITERAL_TYPES:
        value = section.data.get("value", section.data.get("default"))
        hint = "" if value is None else f"Write {section.where.rpartition('.')[2]}: {value}."
        section.wrong("", "declares a literal, and Azure ML takes its value alone from a job.", hint)
        return
    for key in sorted((schema.INPUT_KEYS - schema.VALUE_KEYS) & section.data.keys()):
        section.wrong(key, f"'{key}' is for a component's input, and Azure ML refuses it on a job's.", "Leave it out.")
    _given_mode(section)


def _given_mode(section: Section) -> str | None:
    """Read the mode of data that is given to a job or a step, in any spelling of upper and lower case."""
    is_table = section.text("type").lower() == "mltable" or "type" not in section
    modes = schema.TABLE_MODES if is_table else schema.GIVEN_INPUT_MODES
    return _mode(section, modes)


def _mode(section: Section, modes: frozenset[str]) -> str | None:
    """Read a mode; one that exists, and that this place does not have, is said to be of another place."""
    written = section.data.get("mode")
    if section.source.file is None or not isinstance(written, str) or written.lower() not in schema.PORT_MODES:
        return section.choice("mode", schema.PORT_MODES, "modes")
    if written.lower() not in modes:
        section.wrong(
            "mode", f"{written} is no mode that Azure ML takes here.", f"The modes are: {', '.join(sorted(modes))}."
        )
    return written.lower()


def _declared(section: Section, name: str, *, valued: bool = False) -> Input:
    if valued and "type" not in section and _OF_THE_PREVIEW & section.data.keys():
        section.wrong("", "is written as in the preview of Azure ML v2.", _WRITE_PATH)
        return Input(name, "uri_folder", optional=True)
    section.known(schema.INPUT_KEYS | schema.VALUE_KEYS if valued else schema.INPUT_KEYS, "an input")
    type_ = _type(section, _TYPES, in_any_case=valued)
    mode = _mode(section, schema.PORT_MODES) if valued else section.choice("mode", schema.PORT_MODES, "modes")
    optional, description = section.flag("optional") is True, section.text("description")
    if type_ is None:
        return Input(name, optional=True, mode=mode, description=description)
    if type_ in DATA_TYPES:
        path = _data_default(section, type_, valued=valued)
        return Input(name, type_, path, optional, mode=mode, description=description)
    default = _literal(section, "value") if valued and "value" in section else _default(section, type_)
    enum, least, most = tuple(section.items("enum")), section.number("min"), section.number("max")
    return Input(name, type_, default, optional, enum, least, most, mode, description)


def _valued(section: Section, name: str) -> Input:
    section.known(schema.VALUE_KEYS | {"description", "optional"}, "an input with a value")
    if "value" in section:
        value = _literal(section, "value")
        return Input(name, "string" if value is None else literal_type(value), value)
    return Input(name, "uri_folder", _data(section), mode=_given_mode(section))


def _type(section: Section, types: tuple[str, ...], *, in_any_case: bool = False) -> str | None:
    if "type" not in section:
        section.wrong("", "states no type.", f"The types are: {', '.join(types)}.")
        return None
    written = section.text("type")
    if written in types:
        return written
    if in_any_case and written.lower() in types:
        return written.lower()
    section.wrong("type", f"'{written}' is no type of Azure ML.", did_you_mean(written, types, "types"))
    return nearest_name(written, types)


def _default(section: Section, type_: str) -> Literal | None:
    """Read a literal's default, as the SDK sends it."""
    value = _literal(section, "default")
    sent = None if value is None else sent_default(type_, value)
    if type_ == "string" and sent != value and not isinstance(value, bool) and not section.is_respelt("default"):
        message = f"a default that is no text goes through a float: the command gets {sent}."
        section.wrong("default", message, f"Write '{value}' in quotes.", "warning")
    return sent


def _literal(section: Section, key: str) -> Literal | None:
    value = section.data.get(key)
    if isinstance(value, (dict, list)):
        section.wrong(key, f"is a {yaml_kind(value)}; a literal is a text, number or boolean.")
        return None
    return value


def _data_default(section: Section, type_: str, *, valued: bool) -> Data | None:
    for key in ("enum", "min", "max"):
        if key in section:
            section.wrong(key, f"'{key}' does not apply to an input of type {type_}; it takes a path.")
    if not valued and "default" in section:
        section.wrong("default", f"an input of type {type_} has no default in Azure ML.", "Make it optional instead.")
        return None
    return _data(section) if "path" in section else None


def _data(section: Section) -> Data:
    type_ = section.text("type").lower() or None
    return Data(section.local(section.text("path")), type_, _mode(section, schema.PORT_MODES))


def read_step_inputs(section: Section) -> dict[str, Literal | Data]:
    """Read what a step gives to its component's inputs."""
    inputs: dict[str, Literal | Data] = {}
    for name in section:
        value = section.data[name]
        if isinstance(value, list):
            section.wrong(name, "is a list; an input is a text, number, boolean or path.", "Write it as one text.")
        elif isinstance(value, dict):
            if (data := _step_data(section.mapping(name), name)) is not None:
                inputs[name] = data
        elif value is not None:
            inputs[name] = value
        elif section.source.file is not None:
            section.wrong(name, "has no value; Azure ML refuses this.", "Leave the key out.")
    return inputs


def _step_data(section: Section, name: str) -> Literal | Data | None:
    if section.data and not (section.data.keys() & schema.VALUE_KEYS):
        as_group = f"Write a member of an input group as {name}.{next(iter(section))}: VALUE."
        hint = _WRITE_PATH if _OF_THE_PREVIEW & section.data.keys() else as_group
        section.wrong("", "is a mapping without 'path'.", hint)
        return None
    section.known(schema.VALUE_KEYS, "an input's value")
    if "value" in section:
        return _literal(section, "value")
    if "path" not in section:
        section.wrong("", "has no 'path'.", _WRITE_PATH)
        return None
    if "type" in section and section.text("type") not in LITERAL_TYPES:
        _type(section, DATA_TYPES, in_any_case=True)
    _given_mode(section)
    return _data(section)


def read_outputs(section: Section, kind: str = schema.EITHER) -> dict[str, Output]:
    """Read the outputs that a component declares, or that a job names; a component states the type of each."""
    found = {}
    for name in section:
        value = section.data[name]
        if value is None or isinstance(value, dict):
            found[name] = _output(section.mapping(name), name, kind)
        else:
            section.wrong(name, f"is a {yaml_kind(value)}.", f"Write {name}: {{type: uri_folder}}.")
            found[name] = Output(name)
    return found


def read_step_outputs(section: Section) -> dict[str, Output | str]:
    """Read what a step says of its outputs: settings, or the pipeline's output that one feeds."""
    found: dict[str, Output | str] = {}
    for name in section:
        value = section.data[name]
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, dict) and value.keys() == {"path"} and "${{" in str(value["path"]):
            found[name] = str(value["path"])
        elif value is None or isinstance(value, dict):
            type_ = section.mapping(name).text("type")
            if type_ in LITERAL_TYPES:
                message = f"a step's own output is a file or folder, and no {type_}."
                section.wrong(f"{name}.type", message, "Declare it in a component, with is_control: true.")
            found[name] = Output(name) if type_ in LITERAL_TYPES else _output(section.mapping(name), name, schema.JOB)
        else:
            hint = f"Write {name}: ${{{{parent.outputs.NAME}}}} or a mapping."
            section.wrong(name, f"is a {yaml_kind(value)}.", hint)
    return found


_OUTPUT_KEYS = {
    schema.COMPONENT: schema.DECLARED_OUTPUT_KEYS,
    schema.JOB: schema.GIVEN_OUTPUT_KEYS,
    schema.EITHER: schema.OUTPUT_KEYS,
}


def _output(section: Section, name: str, kind: str) -> Output:
    is_declared = kind == schema.COMPONENT
    in_memory = section.source.file is None
    section.known(_OUTPUT_KEYS[schema.EITHER if in_memory else kind], "an output")
    type_ = None
    if (is_declared and not in_memory) or "type" in section:
        type_ = _type(section, DATA_TYPES if kind == schema.JOB else _TYPES, in_any_case=kind == schema.JOB)
    if "version" in section and not section.text("name"):
        section.wrong("version", "is there without a name.", "Add the name under which the output is registered.")
    path = section.text("path")
    modes = schema.GIVEN_OUTPUT_MODES if kind == schema.JOB else schema.PORT_MODES
    return Output(
        name,
        type_,
        section.choice("mode", schema.PORT_MODES, "modes") if is_declared else _mode(section, modes),
        section.text("description"),
        section.local(path) if path else None,
        section.text("name") or None,
        section.text("version") or None,
    )

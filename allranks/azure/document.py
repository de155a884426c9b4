"""The SDK's pipeline job to a plain document, in the form of a pipeline YAML.

A component that was loaded from a YAML file, and not changed since, is named by the file's path; any other stands
inline. So the document says the same as YAML would, and nothing that the SDK drops or rewrites on loading is lost.
Where each thing lies on the SDK's entities was found by trial with azure-ai-ml 1.35; a node is an attribute dict that
answers a missing attribute with ``{}``, which is why types are tested throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from azure.ai.ml import Input, Output
from azure.ai.ml.entities import PipelineComponent, PipelineJob

from allranks.azure import sdk
from allranks.azure.document_parts import (
    PARALLEL_FIELDS,
    QUEUE_FIELDS,
    RESOURCE_FIELDS,
    absolute_path,
    command_document,
    declaration_document,
    distribution_document,
    flat_ports,
    parallel_document,
    picked_fields,
    plain_value,
    pristine_component,
    value_text,
    without_empty,
    yaml_file,
)
from allranks.spec.model import LITERAL_TYPES

_TEXTS = ("name", "version", "display_name", "description", "experiment_name", "tags")
_OF_JOB = ("properties", "services", "identity")
_OF_STEP = ("comment", "properties", "services", "identity")
SWEEP_FIELDS = ("sampling_algorithm", "search_space", "objective", "early_termination", "limits", "queue_settings")


def job_document(job: PipelineJob) -> dict[str, Any]:
    """The whole job: its inputs are declared, with the values that it was given as their defaults."""
    component = job.component
    values = sdk.given_inputs(job)
    inputs = dict(_declarations(component))
    for name, declared in inputs.items():
        declared.update(_given(values.get(name), declared))
    # A job that was loaded from YAML declares nothing: its inputs are bare values.
    inputs |= {name: _step_input(value) for name, value in values.items() if name not in inputs}
    return without_empty(
        {"type": "pipeline", "name": job.name or component.name, "compute": job.compute}
        | {key: plain_value(getattr(job, key, None)) for key in _TEXTS if key != "name"}
        | _written(job, _OF_JOB)
        | {"settings": _settings(job), "inputs": inputs, "outputs": _outputs(job.outputs), "jobs": _steps(component)}
    )


def _written(entity: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Fields as the SDK's own schema writes them into YAML."""
    given = [key for key in keys if getattr(entity, key, None)]
    if not given:
        return {}
    fields = sdk.entity_fields(entity)
    return {key: plain_value(fields[key].serialize(key, entity)) for key in given if key in fields}


def _settings(job: PipelineJob) -> dict[str, Any]:
    settings = {} if job.settings is None else plain_value(sdk.entity_document(job.settings))
    settings.pop(sdk.SOURCE_KEY, None)
    return settings


def _declarations(component: PipelineComponent) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every input of a pipeline, groups flattened; one without a type takes that of the port which it feeds."""
    for name, declared in flat_ports(component.inputs):
        document, ports = declaration_document(declared), list(_ports_fed_by(component, name))
        if "type" not in document:
            document["type"] = ports[0].type if ports else "string"
        if ports and not document.keys() & {"optional", "default"} and all(port.optional for port in ports):
            document["optional"] = True
        yield name, document


def _ports_fed_by(component: PipelineComponent, name: str) -> Iterator[Any]:
    """The inputs of the steps' components that take exactly this input of the pipeline."""
    for node in component.jobs.values():
        if node.type == "if_else":
            continue
        declared = dict(flat_ports(getattr(node.component, "inputs", None) or {}))
        for port, value in sdk.given_inputs(node).items():
            if value_text(value) == f"${{{{parent.inputs.{name}}}}}" and port in declared:
                yield declared[port]


def _given(value: Any, declared: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller of the pipeline function gave for an input."""
    if value is None:
        return {}
    if isinstance(value, Input):
        return _data(value)
    return {"value": plain_value(value)} if declared["type"] in LITERAL_TYPES else {"path": absolute_path(str(value))}


def _steps(component: PipelineComponent) -> dict[str, Any]:
    return {name: without_empty(_step(node)) for name, node in component.jobs.items()}


def _step(node: Any) -> dict[str, Any]:
    if node.type == "if_else":  # the SDK's own schema writes it, bindings and all
        return {"type": node.type, **plain_value(sdk.entity_document(node))}
    common = {
        "type": node.type,
        "display_name": node.display_name if isinstance(node.display_name, str) else None,
        "inputs": {name: _step_input(value) for name, value in sdk.given_inputs(node).items()},
        "outputs": _step_outputs(node),
        "compute": plain_value(node.compute),
        "tags": plain_value(node.tags),
        **_written(node, _OF_STEP),
    }
    if node.type == "sweep":
        written = plain_value(sdk.entity_document(node))
        search = {key: _type_first(written.get(key)) for key in SWEEP_FIELDS}
        search["resources"] = picked_fields(node.resources, RESOURCE_FIELDS)
        return common | {"trial": _trial(node.trial)} | search
    if node.type == "parallel":
        written = plain_value(sdk.entity_document(node))
        own = {key: written.get(key) for key in PARALLEL_FIELDS}
        return common | {"component": _component(node.component), **own}
    if node.type not in ("command", "pipeline"):
        return common
    return common | {"component": _component(node.component)} | (_launch(node) if node.type == "command" else {})


def _type_first(setting: Any) -> Any:
    """The order in which people write a sweep's mappings."""
    if not isinstance(setting, dict):
        return setting
    rest = {key: _type_first(value) for key, value in setting.items() if key != "type"}
    return ({"type": setting["type"]} if "type" in setting else {}) | rest


def _trial(component: Any) -> Any:
    """A sweep's trial; inline also if only where it runs was changed, for a sweep has no place to say that."""
    fresh = pristine_component(component)
    changed = fresh is not None and _machines(component) != _machines(fresh)
    return command_document(component) if changed else _component(component)


def _machines(carrier: Any) -> dict[str, Any]:
    """What a step, a trial or a component says of where it runs."""
    return {
        "resources": picked_fields(getattr(carrier, "resources", None), RESOURCE_FIELDS),
        "distribution": distribution_document(getattr(carrier, "distribution", None)),
    }


def _launch(node: Any) -> dict[str, Any]:
    """What a command step sets differently from its component, each block whole: the SDK merges none of them."""
    own = _machines(pristine_component(node.component) or node.component)
    limits = node.limits
    return {key: said for key, said in _machines(node).items() if said != own[key]} | {
        "limits": {"timeout": plain_value(limits.timeout)} if getattr(limits, "timeout", None) else None,
        "environment_variables": plain_value(node.environment_variables),
        "queue_settings": picked_fields(node.queue_settings, QUEUE_FIELDS),
    }


def _step_input(value: Any) -> Any:
    if not isinstance(value, Input):
        return plain_value(value)
    path = value_text(value)
    return path if path.startswith("${{") and value.mode is None else _data(value)


def _step_outputs(node: Any) -> dict[str, Any]:
    settings = {name: _step_output(sdk.port_setting(port)) for name, port in node.outputs.items()}
    return {name: setting for name, setting in settings.items() if setting is not None}


def _step_output(data: Any) -> Any:
    """The pipeline's output that a step's output feeds, or the step's settings for it."""
    if data is None or isinstance(data, str):
        return data
    if not isinstance(data, Output):
        return f"${{{{parent.outputs.{sdk.port_name(data)}}}}}"
    path = data.path
    return str(path) if path and str(path).startswith("${{") else _output_settings(data)


def _outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's outputs: what the step's port says, and over it what was set, which replaces the port's mode."""
    found = {}
    for name, port in outputs.items():
        meta, data = sdk.port_declaration(port), sdk.port_setting(port)
        keys = ("type", "description") if isinstance(data, Output) else ("type", "mode", "description")
        declared = {} if meta is None else {key: getattr(meta, key, None) for key in keys}
        found[name] = without_empty(declared) | (_output_settings(data) if isinstance(data, Output) else {})
    return found


def _output_settings(data: Output) -> dict[str, Any]:
    """Without the type: the SDK makes it uri_folder as soon as anything else is set."""
    path = None if data.path is None else absolute_path(str(data.path))
    return without_empty({"mode": data.mode, "path": path, "name": data.name, "version": data.version})


def _data(value: Input) -> dict[str, Any]:
    said = {"type": value.type, "path": absolute_path(value_text(value)), "mode": value.mode}
    return without_empty(said | {key: getattr(value, key, None) for key in ("path_on_compute", "datastore")})


def _component(component: Any) -> Any:
    """The path of an unchanged component file, the id of a registered component, or the component itself."""
    if isinstance(component, str):
        return component if component.startswith("azureml:") else f"azureml:{component}"
    if pristine_component(component) is not None:
        return str(yaml_file(component))
    if isinstance(component, PipelineComponent):
        return without_empty(
            {"type": "pipeline"}
            | {key: plain_value(getattr(component, key, None)) for key in _TEXTS}
            | {"inputs": dict(_declarations(component)), "outputs": _outputs(component.outputs)}
            | {"jobs": _steps(component)}
        )
    return parallel_document(component) if component.type == "parallel" else command_document(component)

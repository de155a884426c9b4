"""The SDK's pipeline job to a plain document, in the form of a pipeline YAML.

A component that was loaded from a YAML file, and not changed since, is named by the file's path; any other stands
inline. So the document says the same as YAML would, and nothing that the SDK drops or rewrites on loading is lost.
Where each thing lies on the SDK's entities was found by trial with azure-ai-ml 1.35; a node is an attribute dict that
answers a missing attribute with ``{}``, which is why types are tested throughout.
"""

# ruff: noqa: SLF001
# The SDK keeps in private attributes what a pipeline job consists of.

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from azure.ai.ml import Input, Output, load_component
from azure.ai.ml.entities import CommandComponent, Environment, PipelineComponent, PipelineJob

_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:|\$\{\{")
_RESOURCES: tuple[str, ...] = ("instance_count", "instance_type", "shm_size", "properties")
_RESOURCES += ("locations", "max_instance_count", "docker_args")
_DISTRIBUTION = ("process_count_per_instance", "worker_count", "parameter_server_count")
_QUEUE = ("job_tier", "priority")
_DECLARATION = ("type", "default", "optional", "enum", "min", "max", "mode", "description")
_TEXTS = ("name", "version", "display_name", "description", "experiment_name", "tags")
_OF_JOB = ("properties", "services", "identity")
_OF_STEP = ("comment", "properties", "services", "identity")
_OF_ENVIRONMENT = ("description", "tags", "inference_config", "os_type", "datastore")
_SWEEP = ("sampling_algorithm", "search_space", "objective", "early_termination", "limits", "queue_settings")


def pipeline_document(job: PipelineJob) -> dict[str, Any]:
    """The whole job: its inputs are declared, with the values that it was given as their defaults."""
    component = job.component
    values = job._build_inputs()
    inputs = dict(_declarations(component))
    for name, declared in inputs.items():
        declared.update(_given(values.get(name), declared))
    # A job that was loaded from YAML declares nothing: its inputs are bare values.
    inputs |= {name: _step_input(value) for name, value in values.items() if name not in inputs}
    return _filled(
        {"type": "pipeline", "name": job.name or component.name, "compute": job.compute}
        | {key: _plain(getattr(job, key, None)) for key in _TEXTS if key != "name"}
        | _written(job, _OF_JOB)
        | {"settings": _settings(job), "inputs": inputs, "outputs": _outputs(job.outputs), "jobs": _steps(component)}
    )


def _written(entity: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Fields as the SDK's own schema writes them into YAML."""
    given = [key for key in keys if getattr(entity, key, None)]
    if not given:
        return {}
    fields = entity._schema_for_validation.fields
    return {key: _plain(fields[key].serialize(key, entity)) for key in given if key in fields}


def _settings(job: PipelineJob) -> dict[str, Any]:
    settings = {} if job.settings is None else _plain(job.settings._to_dict())
    settings.pop("_source", None)
    return settings


def _declarations(component: PipelineComponent) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every input of a pipeline, groups flattened; one without a type takes that of the port which it feeds."""
    for name, declared in _flat(component.inputs):
        document = _declaration(declared)
        if "type" not in document:
            port = next(_ports_fed_by(component, name), None)
            document |= {"type": "string"} if port is None else {"type": port.type}
        ports = list(_ports_fed_by(component, name))
        if "optional" not in document and "default" not in document and ports:
            document |= {"optional": True} if all(port.optional for port in ports) else {}
        yield name, document


def _flat(inputs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, declared in inputs.items():
        if declared.type == "group":
            yield from _flat(declared.values, f"{prefix}{name}.")
        else:
            yield prefix + name, declared


def _ports_fed_by(component: PipelineComponent, name: str) -> Iterator[Any]:
    """The inputs of the steps' components that take exactly this input of the pipeline."""
    for node in component.jobs.values():
        declared = dict(_flat(getattr(node.component, "inputs", None) or {}))
        for port, value in node._build_inputs().items():
            if _text_of(value) == f"${{{{parent.inputs.{name}}}}}" and port in declared:
                yield declared[port]


def _declaration(declared: Any) -> dict[str, Any]:
    found = {key: _plain(getattr(declared, key, None)) for key in _DECLARATION}
    return {key: value for key, value in found.items() if value not in (None, []) and (value or key != "description")}


def _given(value: Any, declared: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller of the pipeline function gave for an input."""
    if value is None:
        return {}
    if isinstance(value, Input):
        return _data(value)
    return {"value": _plain(value)} if declared["type"] in _LITERALS else {"path": _place(str(value))}


_LITERALS = ("string", "integer", "number", "boolean")


def _steps(component: PipelineComponent) -> dict[str, Any]:
    return {name: _filled(_step(node)) for name, node in component.jobs.items()}


def _step(node: Any) -> dict[str, Any]:
    common = {
        "type": node.type,
        "display_name": node.display_name if isinstance(node.display_name, str) else None,
        "inputs": {name: _step_input(value) for name, value in node._build_inputs().items()},
        "outputs": _step_outputs(node),
        "compute": _plain(node.compute),
        "tags": _plain(node.tags),
        **_written(node, _OF_STEP),
    }
    if node.type == "sweep":
        written = _plain(node._to_dict())
        search = {key: _type_first(written.get(key)) for key in _SWEEP}
        return common | {"trial": _trial(node.trial)} | search | {"resources": _resources(node.resources)}
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
    if fresh is None:
        return _component(component)
    ours, theirs = ((_resources(one.resources), _distribution(one.distribution)) for one in (component, fresh))
    return _component(component) if ours == theirs else _command(component)


def _launch(node: Any) -> dict[str, Any]:
    """What a command step sets differently from its component, each block whole: the SDK merges none of them."""
    component = pristine_component(node.component) or node.component
    resources = _resources(node.resources)
    distribution = _distribution(node.distribution)
    limits = node.limits
    return {
        "resources": None if resources == _resources(getattr(component, "resources", None)) else resources,
        "distribution": None
        if distribution == _distribution(getattr(component, "distribution", None))
        else distribution,
        "limits": {"timeout": _plain(limits.timeout)} if getattr(limits, "timeout", None) else None,
        "environment_variables": _plain(node.environment_variables),
        "queue_settings": _picked(node.queue_settings, _QUEUE),
    }


def _step_input(value: Any) -> Any:
    if not isinstance(value, Input):
        return _plain(value)
    path = _text_of(value)
    return path if path.startswith("${{") and value.mode is None else _data(value)


def _step_outputs(node: Any) -> dict[str, Any]:
    return {name: setting for name, port in node.outputs.items() if (setting := _step_output(port._data)) is not None}


def _step_output(data: Any) -> Any:
    """The pipeline's output that a step's output feeds, or the step's settings for it."""
    if data is None or isinstance(data, str):
        return data
    if not isinstance(data, Output):
        return f"${{{{parent.outputs.{data._port_name}}}}}"
    path = data.path
    return str(path) if path and str(path).startswith("${{") else _output_settings(data)


def _outputs(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's outputs: what the step's port says, and over it what was set, which replaces the port's mode."""
    found = {}
    for name, port in outputs.items():
        meta, data = port._meta, port._data
        keys = ("type", "description") if isinstance(data, Output) else ("type", "mode", "description")
        declared = {} if meta is None else {key: getattr(meta, key, None) for key in keys}
        found[name] = _filled(declared) | (_output_settings(data) if isinstance(data, Output) else {})
    return found


def _output_settings(data: Output) -> dict[str, Any]:
    """Without the type: the SDK makes it uri_folder as soon as anything else is set."""
    path = None if data.path is None else _place(str(data.path))
    return _filled({"mode": data.mode, "path": path, "name": data.name, "version": data.version})


def _data(value: Input) -> dict[str, Any]:
    said = {"type": value.type, "path": _place(_text_of(value)), "mode": value.mode}
    return _filled(said | {key: getattr(value, key, None) for key in ("path_on_compute", "datastore")})


def _component(component: Any) -> Any:
    """The path of an unchanged component file, the id of a registered component, or the component itself."""
    if isinstance(component, str):
        return component if component.startswith("azureml:") else f"azureml:{component}"
    if pristine_component(component) is not None:
        return str(_file(component))
    if isinstance(component, PipelineComponent):
        return _filled(
            {"type": "pipeline"}
            | {key: _plain(getattr(component, key, None)) for key in _TEXTS}
            | {
                "inputs": dict(_declarations(component)),
                "outputs": _outputs(component.outputs),
                "jobs": _steps(component),
            }
        )
    return _command(component)


def _command(component: CommandComponent) -> dict[str, Any]:
    base = Path(component.base_path or ".").resolve()
    return _filled(
        {"type": "command", "command": component.command, "is_deterministic": component.is_deterministic}
        | {key: _plain(getattr(component, key, None)) for key in (*_TEXTS, "properties") if key != "experiment_name"}
        | {
            "inputs": {name: _filled(_declaration(port)) for name, port in _flat(component.inputs)},
            "outputs": {
                name: _filled({key: getattr(port, key, None) for key in ("type", "mode", "description")})
                for name, port in component.outputs.items()
            },
            "code": _below(base, component.code),
            "additional_includes": [_below(base, include) for include in component.additional_includes or ()],
            "environment": _environment(component.environment, base),
            "distribution": _distribution(component.distribution),
            "resources": _resources(component.resources),
            "queue_settings": _picked(getattr(component, "queue_settings", None), _QUEUE),
        }
    )


def _environment(environment: Any, base: Path) -> Any:
    if isinstance(environment, str):
        return environment if environment.startswith(("azureml:", "file:")) else f"azureml:{environment}"
    if not isinstance(environment, Environment):
        return None
    build = environment.build
    return _filled(
        {
            "name": environment.name,
            "version": environment.version,
            "image": environment.image,
            "conda_file": _plain(environment.conda_file),
            "build": None
            if build is None
            else {"path": _below(base, build.path), "dockerfile_path": build.dockerfile_path},
        }
        | {key: _plain(getattr(environment, key, None)) for key in _OF_ENVIRONMENT}
    )


def _resources(resources: Any) -> dict[str, Any]:
    return _picked(resources, _RESOURCES)


def _distribution(distribution: Any) -> dict[str, Any] | None:
    found = _picked(distribution, ("type", *_DISTRIBUTION))
    return {**found, "type": str(found["type"]).lower()} if found else None


def _picked(source: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of an entity or of a dict, with pipeline parameters as the text of their binding."""
    values = source if isinstance(source, dict) else {key: getattr(source, key, None) for key in keys}
    return _filled({key: _plain(values.get(key)) for key in keys})


def pristine_component(component: Any) -> Any:
    """The component as its own YAML file says it, if nothing but where it runs was changed since; else None."""
    file = _file(component)
    if file is None:
        return None
    fresh = _load(file)
    return fresh if _said(fresh) == _said(component) else None


def _file(component: Any) -> Path | None:
    source = getattr(component, "_source_path", None)
    return Path(source).resolve() if source and str(source).endswith((".yaml", ".yml")) else None


@cache
def _load(file: Path) -> Any:
    return load_component(file)


def _said(component: Any) -> dict[str, Any]:
    """All of it but what each step carries itself; a step's change shows on the component too, for they share it."""
    alone = copy.copy(component)
    alone.resources = alone.distribution = None  # also because the SDK cannot dump a pipeline parameter in there
    said: dict[str, Any] = alone._to_dict()
    return said


def _plain(value: Any) -> Any:
    """JSON's types; whatever refers to something becomes the text of its binding."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def _text_of(value: Any) -> str:
    """The path of an input, or the text of a binding."""
    return str(value.path) if isinstance(value, Input) else str(value)


def _place(path: str) -> str:
    """A local path becomes absolute, from the working directory, as the SDK takes it; an address stays."""
    return path if _ADDRESS.match(path) else str(Path(path).absolute())


def _below(base: Path, path: Any) -> str | None:
    if path is None:
        return None
    return str(path) if _ADDRESS.match(str(path)) else str((base / str(path)).resolve())


def _filled(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys that say nothing."""
    return {key: value for key, value in document.items() if value is not None and value not in ({}, [])}

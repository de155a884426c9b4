"""The parts of the SDK's entities as plain documents: values, ports, command components.

A component that is as its own YAML file says is known by that file.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from azure.ai.ml import Input, load_component
from azure.ai.ml.entities import CommandComponent, Environment

from allranks.azure.sdk import entity_document, source_path

RESOURCE_FIELDS: tuple[str, ...] = ("instance_count", "instance_type", "shm_size", "properties")
RESOURCE_FIELDS += ("locations", "max_instance_count", "docker_args")
ENVIRONMENT_FIELDS: tuple[str, ...] = ("name", "version", "image", "conda_file", "build", "description", "tags")
ENVIRONMENT_FIELDS += ("inference_config", "os_type", "datastore")
QUEUE_FIELDS = ("job_tier", "priority")
PARALLEL_FIELDS: tuple[str, ...] = (
    "input_data",
    "mini_batch_size",
    "partition_keys",
    "error_threshold",
    "mini_batch_error_threshold",
)
PARALLEL_FIELDS += ("max_concurrency_per_instance", "retry_settings", "logging_level", "resources")
PARALLEL_FIELDS += ("environment_variables",)
_DISTRIBUTION = ("process_count_per_instance", "worker_count", "parameter_server_count")
_TEXTS = ("name", "version", "display_name", "description", "tags", "properties")
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:|\$\{\{")
_DECLARATION = ("type", "default", "optional", "enum", "min", "max", "mode", "description")

_load_once = cache(load_component)


def plain_value(value: Any) -> Any:
    """JSON's types; whatever refers to something becomes the text of its binding."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, (list, tuple)) else str(value)


def value_text(value: Any) -> str:
    """The path of an input, or the text of a binding."""
    return str(value.path) if isinstance(value, Input) else str(value)


def absolute_path(path: str) -> str:
    """A local path becomes absolute, from the working directory, as the SDK takes it; an address stays."""
    return path if _ADDRESS.match(path) else str(Path(path).absolute())


def path_below(base: Path, path: Any) -> str | None:
    """A path from a component's folder, absolute; an address stays, and so does None."""
    if path is None:
        return None
    return str(path) if _ADDRESS.match(str(path)) else str((base / str(path)).resolve())


def without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without the keys that say nothing."""
    return {key: value for key, value in document.items() if value is not None and value not in ({}, [])}


def picked_fields(source: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of an entity or of a dict, with pipeline parameters as the text of their binding."""
    values = source if isinstance(source, dict) else {key: getattr(source, key, None) for key in keys}
    return without_empty({key: plain_value(values.get(key)) for key in keys})


def flat_ports(inputs: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every declared input; those of a group by their dotted names."""
    for name, declared in inputs.items():
        if declared.type == "group":
            yield from flat_ports(declared.values, f"{prefix}{name}.")
        else:
            yield prefix + name, declared


def declaration_document(declared: Any) -> dict[str, Any]:
    """What a component's YAML would say of an input."""
    found = {key: plain_value(getattr(declared, key, None)) for key in _DECLARATION}
    return {key: value for key, value in found.items() if value not in (None, []) and (value or key != "description")}


def command_document(component: CommandComponent) -> dict[str, Any]:
    """A command component as it would stand inline, its paths absolute."""
    base = Path(component.base_path or ".").resolve()
    return without_empty(
        {"type": "command", "command": component.command, "is_deterministic": component.is_deterministic}
        | {key: plain_value(getattr(component, key, None)) for key in _TEXTS}
        | {
            "inputs": {name: without_empty(declaration_document(port)) for name, port in flat_ports(component.inputs)},
            "outputs": {
                name: without_empty({key: getattr(port, key, None) for key in ("type", "mode", "description")})
                for name, port in component.outputs.items()
            },
            "code": path_below(base, component.code),
            "additional_includes": [path_below(base, include) for include in component.additional_includes or ()],
            "environment": _environment(component.environment, base),
            "distribution": distribution_document(component.distribution),
            "resources": picked_fields(component.resources, RESOURCE_FIELDS),
            "queue_settings": picked_fields(getattr(component, "queue_settings", None), QUEUE_FIELDS),
        }
    )


def parallel_document(component: Any) -> dict[str, Any]:
    """A parallel component as it would stand inline, its paths absolute."""
    base, task = Path(component.base_path or ".").resolve(), component.task
    written = plain_value(entity_document(component))
    own = {"code": path_below(base, task.code), "environment": _environment(task.environment, base)}
    return without_empty({**written, "task": without_empty({**written.get("task", {}), **own})})


def _environment(environment: Any, base: Path) -> Any:
    if isinstance(environment, str):
        return environment if environment.startswith(("azureml:", "file:")) else f"azureml:{environment}"
    if not isinstance(environment, Environment):
        return None
    said = {key: plain_value(getattr(environment, key, None)) for key in ENVIRONMENT_FIELDS}
    if (build := environment.build) is not None:
        said["build"] = {"path": path_below(base, build.path), "dockerfile_path": build.dockerfile_path}
    return without_empty(said)


def distribution_document(distribution: Any) -> dict[str, Any] | None:
    """The distribution of a step or a component."""
    found = picked_fields(distribution, ("type", *_DISTRIBUTION))
    return {**found, "type": str(found["type"]).lower()} if found else None


def pristine_component(component: Any) -> Any:
    """The component as its own YAML file says it, if nothing but where it runs was changed since; else None."""
    file = yaml_file(component)
    if file is None:
        return None
    fresh = _load_once(file)
    return fresh if _own_document(fresh) == _own_document(component) else None


def yaml_file(component: Any) -> Path | None:
    """The YAML file from which a component was loaded."""
    source = source_path(component)
    return Path(source).resolve() if source.endswith((".yaml", ".yml")) else None


def _own_document(component: Any) -> dict[str, Any]:
    """All of it but what each step carries itself; a step's change shows on the component too, for they share it."""
    alone = copy.copy(component)
    alone.resources = alone.distribution = None  # also because the SDK cannot dump a pipeline parameter in there
    return entity_document(alone)

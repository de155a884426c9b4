"""The SDK's command component to a plain document; one that is as its own YAML file says is known by that file."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

from azure.ai.ml import load_component
from azure.ai.ml.entities import CommandComponent, Environment

from allranks.azure.document_values import (
    declaration_document,
    flat_ports,
    path_below,
    picked_fields,
    plain_value,
    without_empty,
)
from allranks.azure.sdk import entity_document, source_path

QUEUE_FIELDS = ("job_tier", "priority")
_RESOURCES: tuple[str, ...] = ("instance_count", "instance_type", "shm_size", "properties")
_RESOURCES += ("locations", "max_instance_count", "docker_args")
_DISTRIBUTION = ("process_count_per_instance", "worker_count", "parameter_server_count")
_TEXTS = ("name", "version", "display_name", "description", "tags", "properties")
_OF_ENVIRONMENT = ("description", "tags", "inference_config", "os_type", "datastore")


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
            "resources": resources_document(component.resources),
            "queue_settings": picked_fields(getattr(component, "queue_settings", None), QUEUE_FIELDS),
        }
    )


def _environment(environment: Any, base: Path) -> Any:
    if isinstance(environment, str):
        return environment if environment.startswith(("azureml:", "file:")) else f"azureml:{environment}"
    if not isinstance(environment, Environment):
        return None
    build = environment.build
    return without_empty(
        {
            "name": environment.name,
            "version": environment.version,
            "image": environment.image,
            "conda_file": plain_value(environment.conda_file),
            "build": None
            if build is None
            else {"path": path_below(base, build.path), "dockerfile_path": build.dockerfile_path},
        }
        | {key: plain_value(getattr(environment, key, None)) for key in _OF_ENVIRONMENT}
    )


def resources_document(resources: Any) -> dict[str, Any]:
    """The resources of a step or a component; empty without any."""
    return picked_fields(resources, _RESOURCES)


def distribution_document(distribution: Any) -> dict[str, Any] | None:
    """The distribution of a step or a component."""
    found = picked_fields(distribution, ("type", *_DISTRIBUTION))
    return {**found, "type": str(found["type"]).lower()} if found else None


def pristine_component(component: Any) -> Any:
    """The component as its own YAML file says it, if nothing but where it runs was changed since; else None."""
    file = yaml_file(component)
    if file is None:
        return None
    fresh = _load(file)
    return fresh if _own_document(fresh) == _own_document(component) else None


def yaml_file(component: Any) -> Path | None:
    """The YAML file from which a component was loaded."""
    source = source_path(component)
    return Path(source).resolve() if source.endswith((".yaml", ".yml")) else None


@cache
def _load(file: Path) -> Any:
    return load_component(file)


def _own_document(component: Any) -> dict[str, Any]:
    """All of it but what each step carries itself; a step's change shows on the component too, for they share it."""
    alone = copy.copy(component)
    alone.resources = alone.distribution = None  # also because the SDK cannot dump a pipeline parameter in there
    return entity_document(alone)

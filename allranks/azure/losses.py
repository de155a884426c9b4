"""What a job has set that its YAML would not say: ``export`` refuses it by name.

The fields are asked of the SDK's own schemas, so one that a newer SDK adds is refused until ``document`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from azure.ai.ml.entities import Environment, PipelineComponent

from allranks.azure.document import SWEEP_FIELDS
from allranks.azure.document_parts import (
    ENVIRONMENT_FIELDS,
    PARALLEL_FIELDS,
    RESOURCE_FIELDS,
    pristine_component,
)
from allranks.azure.sdk import added_attributes, yaml_schemas
from allranks.errors import UsageError

_TEXTS = {"name", "display_name", "description", "tags", "version"}
_NODE = {"display_name", "tags", "inputs", "outputs", "properties", "comment", "type", "compute"}
_SCHEMAS = yaml_schemas()
WRITTEN_FIELDS: Mapping[type, frozenset[str]] = {
    _SCHEMAS.job: frozenset(
        _TEXTS - {"version"}
        | {"services", "experiment_name", "properties", "compute", "identity", "type", "settings"}
        | {"inputs", "outputs", "jobs", "component"}
    ),
    _SCHEMAS.job_settings: frozenset(
        {"default_datastore", "default_compute", "continue_on_step_failure", "force_rerun"}
    ),
    _SCHEMAS.command: frozenset(
        _NODE
        | {"component", "environment_variables", "resources", "distribution", "queue_settings", "limits"}
        | {"services", "identity"}
        | {"command", "code", "environment"}  # the component's own
    ),
    _SCHEMAS.sweep: frozenset(_NODE | {*SWEEP_FIELDS, "resources", "trial"}),
    _SCHEMAS.parallel: frozenset(_NODE | {*PARALLEL_FIELDS, "component", "identity", "task"}),
    _SCHEMAS.nested_pipeline: frozenset(_NODE - {"compute"} | {"component"}),
    _SCHEMAS.command_component: frozenset(
        _TEXTS
        | {"command", "code", "environment", "resources", "distribution", "queue_settings", "is_deterministic"}
        | {"inputs", "outputs", "type", "additional_includes", "properties"}
    ),
    _SCHEMAS.pipeline_component: frozenset(_TEXTS | {"inputs", "outputs", "type", "jobs"}),
    _SCHEMAS.environment: frozenset(ENVIRONMENT_FIELDS),
    _SCHEMAS.resources: frozenset(RESOURCE_FIELDS),
}
"""The fields of each schema that ``document`` writes; a name and a version inline mean nothing to Azure ML."""

_IGNORED = frozenset({"id", "latest_version", "schema", "creation_context", "status", "log_files"})
"""What the service sets, and the address of the schema."""

_OF_NODE = {
    "command": _SCHEMAS.command,
    "sweep": _SCHEMAS.sweep,
    "parallel": _SCHEMAS.parallel,
    "pipeline": _SCHEMAS.nested_pipeline,
}
_OF_THE_COMPONENT = {"parallel": ("task",)}
"""What a step of these types has from its component, and cannot say otherwise in the YAML that is written."""

_DUMPED = ("parallel",)
"""The types whose components are written whole, by the SDK's own schemas."""


def unwritten_fields(job: Any) -> list[str]:
    """List the fields of a job, of its steps and of their components that are set and would be lost, by their place.

    Raises:
        UsageError: a step is of a type that ``export`` does not write.
    """
    found = [*_unwritten(job, _SCHEMAS.job, "the job")]
    found += [] if job.settings is None else _unwritten(job.settings, _SCHEMAS.job_settings, "settings")
    return [*found, *_of_steps(job.component, "")]


def schema_fields(schema: type) -> frozenset[str]:
    """The fields of a schema of the SDK that can be written."""
    fields = schema(context={"base_path": "."}).fields
    return frozenset(name for name, field in fields.items() if not field.dump_only) - _IGNORED


def _unwritten(entity: Any, schema: type, where: str) -> Iterator[str]:
    fields = schema_fields(schema) | _attributes(entity).keys()
    for name in sorted(fields - WRITTEN_FIELDS[schema]):
        value = _attributes(entity).get(name, getattr(entity, name, None))
        if value not in (None, {}, [], ""):
            yield f"{where}: {name}"


def _attributes(entity: Any) -> Mapping[str, Any]:
    """What a user has set on a step beside its fields; the SDK sends it along."""
    return {name: value for name, value in added_attributes(entity).items() if name not in _IGNORED}


def _of_steps(component: Any, prefix: str) -> Iterator[str]:
    for name, node in component.jobs.items():
        where = f"step {prefix}{name}"
        if node.type == "if_else":
            continue  # its three fields are all that it has
        schema = _OF_NODE.get(node.type)
        if schema is None:
            message = f"{where} is of type '{node.type}', which allranks does not export."
            raise UsageError(message, "Take the step out, or send the job with azure-ai-ml: jobs.create_or_update.")
        yield from _unwritten(node, schema, where)
        inner = node.trial if node.type == "sweep" else node.component
        yield from _changed(node, inner, where)
        if node.type not in _DUMPED and not isinstance(inner, str) and pristine_component(inner) is None:
            yield from _of_component(inner, where, f"{prefix}{name}.")


def _changed(node: Any, component: Any, where: str) -> Iterator[str]:
    """What was set on a step of that which only its component can say."""
    keys = _OF_THE_COMPONENT.get(node.type, ())
    if not keys or isinstance(component, str):
        return
    for key in keys:
        own, said = (getattr(one, key, None) for one in (node, component))
        if own not in (None, {}) and _text(own) != _text(said):
            yield f"{where}: {key}"


def _text(value: Any) -> str:
    return str(sorted(vars(value).items())) if hasattr(value, "__dict__") else str(value)


def _of_component(component: Any, where: str, prefix: str) -> Iterator[str]:
    if isinstance(component, PipelineComponent):
        yield from _unwritten(component, _SCHEMAS.pipeline_component, f"{where}, component")
        yield from _of_steps(component, prefix)
        return
    yield from _unwritten(component, _SCHEMAS.command_component, f"{where}, component")
    if isinstance(component.environment, Environment):
        yield from _unwritten(component.environment, _SCHEMAS.environment, f"{where}, environment")

"""What a submission would send, without asking Azure: steps, machines, inputs and the hash of each snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.local import snapshot
from allranks.redaction import redact
from allranks.spec import Component, Data, Pipeline, Step, single_reference
from allranks.spec.check_machines import own_resources
from allranks.spec.step_sizes import step_sizes

_Known = Mapping[str, Any]


def submission_outline(pipeline: Pipeline, ids: Mapping[str, str]) -> dict[str, Any]:
    """The job of a checked pipeline as a document; ``ids`` are those of components that are not sent along, by step.

    Raises:
        StorageError: a snapshot cannot be read.
    """
    known = {name: _plain(declared.default) for name, declared in pipeline.inputs.items()}
    steps = _steps(pipeline, known, ids, "")
    for one in step_sizes(pipeline):
        steps[one.step] |= {"size": one.size, "place": one.place}
    return {
        "pipeline": pipeline.name,
        "experiment": pipeline.experiment_name,
        "compute": pipeline.settings.default_compute,
        "inputs": {name: value for name, value in known.items() if value is not None},
        "steps": steps,
    }


def _steps(pipeline: Pipeline, known: _Known, ids: Mapping[str, str], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, step in pipeline.steps.items():
        inputs = {
            port: value for port, given in step.inputs.items() if (value := _resolved(_plain(given), known)) is not None
        }
        if isinstance(step.component, Pipeline):
            defaults = {port: _plain(declared.default) for port, declared in step.component.inputs.items()}
            found |= _steps(step.component, {**defaults, **inputs}, ids, f"{prefix}{name}.")
        else:
            found[prefix + name] = _step(step, step.component, known, ids.get(prefix + name)) | {"inputs": inputs}
    return found


def _step(step: Step, component: Component, known: _Known, registered: str | None) -> dict[str, Any]:
    distribution = step.distribution or component.distribution
    resources = own_resources(step)
    processes = None if distribution is None else distribution.processes_per_node
    environment = component.environment
    document = {
        "component": registered or component.name,
        "environment": environment.reference or str(environment.file or environment.inline or ""),
        "distribution": None if distribution is None else distribution.type,
        "nodes": _resolved(resources.nodes, known) or 1,
        "processes": _resolved(processes, known) or 1,
        "instance_type": _resolved(resources.instance_type, known),
        "compute": step.compute,
        "timeout": _resolved(step.timeout, known),
    }
    if registered is not None:
        return document | {"snapshot": None, "files": None}
    files = snapshot.snapshot_files(component)
    return document | {"snapshot": snapshot.content_hash(files) if files else None, "files": len(files)}


def _plain(value: Any) -> Any:
    return redact(value.path) if isinstance(value, Data) else value


def _resolved(value: Any, known: _Known) -> Any:
    """What a binding to the pipeline's inputs comes to; what only the run knows stays as it is written."""
    reference = single_reference(value) if isinstance(value, str) else None
    if reference is None or reference.scope != "parent.inputs":
        return value
    return known.get(reference.name)

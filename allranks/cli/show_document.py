"""What a component or a pipeline takes, gives and starts, as data: what ``allranks show --json`` prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from allranks.redaction import redact
from allranks.spec import Component, Data, Distribution, Input, Output, Pipeline, Resources, Step, single_reference
from allranks.spec.values import plain_number


def show_document(shown: Component | Pipeline, target: str, mapped: Sequence[str] = ()) -> dict[str, Any]:
    """What ``--json`` prints: the same as the page, with the defaults, enums and ranges typed."""
    ranges = bound_ranges(shown) if isinstance(shown, Pipeline) else {}
    common: dict[str, Any] = {
        "kind": "component" if isinstance(shown, Component) else "pipeline",
        "name": shown_name(shown),
        "version": shown.version,
        "display_name": shown.display_name,
        "description": shown.description,
        "path": str(shown.source.file or target.partition(":")[0]),
        "inputs": {name: _input_document(ranges.get(name, port)) for name, port in shown.inputs.items()},
        "outputs": {name: _output_document(port) for name, port in shown.outputs.items()},
        "example": example_command(shown, target, mapped),
    }
    if isinstance(shown, Component):
        launch = _launch_document(shown.distribution, shown.resources)
        return common | {"environment": environment_name(shown), **launch}
    return common | {"steps": {name: _step_document(step) for name, step in shown.steps.items()}}


def shown_name(shown: Component | Pipeline) -> str:
    """The name; a pipeline job need not have one and is then called like its file."""
    return shown.name or (shown.source.file.stem if shown.source.file else "")


def example_command(shown: Component | Pipeline, target: str, mapped: Sequence[str] = ()) -> str:
    """A command that runs it here: every input that has to be given stands for itself in capitals."""
    required = [f"{port.name}={port.name.upper()}" for port in example_inputs(shown.inputs)]
    maps = [word for one in mapped for word in ("--map", one)]
    return shlex.join(["allranks", "run", target, *required, *maps])


def example_inputs(inputs: Mapping[str, Input]) -> list[Input]:
    """The inputs that an example has to give: what is required, and of numbered ports the first two.

    Azure ML has no lists of data: a component that takes several of a kind has ``NAME_1``, ``NAME_2``, ..., each
    optional, since it is open which is the last, and refuses to run with none.
    """
    series = [name.removesuffix("_1") for name in inputs if name.endswith("_1")]
    numbered = {f"{stem}_{number}" for stem in series for number in (1, 2) if inputs[f"{stem}_1"].is_data}
    return [port for name, port in inputs.items() if port.required or name in numbered]


def _launch_document(distribution: Distribution | None, resources: Resources) -> dict[str, Any]:
    return {
        "distribution": None if distribution is None else distribution.type,
        "nodes": 1 if resources.nodes is None else resources.nodes,
        "processes": 1 if distribution is None else distribution.processes_per_node or 1,
    }


def _step_document(step: Step) -> dict[str, Any]:
    component = step.component
    common: dict[str, Any] = {
        "component": component.name,
        "inputs": {name: plain_default(value) for name, value in step.inputs.items()},
    }
    if step.sweep:
        goal, metric = step.sweep.objective
        common["sweep"] = {
            "algorithm": step.sweep.algorithm,
            "search_space": {name: dict(search) for name, search in step.sweep.space.items()},
            "goal": goal,
            "primary_metric": metric,
            "limits": dict(step.sweep.limits),
        }
    if isinstance(component, Pipeline):
        return common | {"steps": len(component.steps)}
    return common | _launch_document(*launch_settings(step))


def launch_settings(step: Step) -> tuple[Distribution | None, Resources]:
    """The step's own distribution and resources, or else those of its component."""
    component = step.component
    if isinstance(component, Pipeline):
        return step.distribution, step.resources
    resources = step.resources if step.resources.nodes is not None else component.resources
    return step.distribution or component.distribution, resources


def _input_document(port: Input) -> dict[str, Any]:
    return {
        "type": port.type,
        "required": port.required,
        "default": plain_default(port.default),
        "choices": list(port.enum),
        "min": port.min,
        "max": port.max,
        "description": port.description,
    }


def _output_document(port: Output) -> dict[str, Any]:
    return {"type": port.type, "mode": port.mode, "description": port.description}


def plain_default(value: object) -> object:
    """A default for people and for JSON: data by its path, a float that is whole without its point, no secret."""
    plain = value.path if isinstance(value, Data) else plain_number(value)
    return redact(plain) if isinstance(plain, str) else plain


def environment_name(component: Component) -> str:
    """The reference of a component's environment, its file, or what stands inline."""
    environment = component.environment
    return environment.reference or redact(str(environment.file or environment.inline or "none"))


def bound_ranges(pipeline: Pipeline) -> dict[str, Input]:
    """The inputs of a pipeline, with the range and the choices of the ports that they feed where they have none.

    Of several ports the narrowest range counts: a value has to suit all of them.
    """
    found = dict(pipeline.inputs)
    for step in pipeline.steps.values():
        ports = bound_ranges(step.component) if isinstance(step.component, Pipeline) else step.component.inputs
        for name, value in step.inputs.items():
            bound = single_reference(value)
            if bound is not None and bound.scope == "parent.inputs" and bound.name in found and name in ports:
                found[bound.name] = _narrowed(found[bound.name], ports[name])
    return found


def _narrowed(port: Input, by: Input) -> Input:
    lows = [bound for bound in (port.min, by.min) if bound is not None]
    highs = [bound for bound in (port.max, by.max) if bound is not None]
    enum = tuple(choice for choice in port.enum if choice in by.enum) if port.enum and by.enum else port.enum or by.enum
    return replace(port, min=max(lows, default=None), max=min(highs, default=None), enum=enum)

"""``allranks show NAME``: what a component or a pipeline takes, gives, and how it is started."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from allranks import catalogue
from allranks.azure.python_target import is_python_target, read_python_pipeline
from allranks.cli import text
from allranks.errors import UnknownNameError
from allranks.local.assets import Stands, read_mapping
from allranks.spec import Component, Data, Distribution, Input, Output, Pipeline, Resources, Step, Sweep, read
from allranks.spec.distribution import distribution_kind
from allranks.spec.values import plain_number

NAME = "show"
HELP = "show the inputs, outputs, distribution and an example of a component or pipeline"

_BINDING = re.compile(r"\$\{\{\s*parent\.inputs\.([\w.]+)\s*\}\}")

WIDTH = 100
"""Descriptions are broken at this column, or at the edge of a terminal that is narrower."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "name", metavar="NAME", help="a name from `allranks list`, a component or pipeline YAML, or FILE.py:FUNCTION"
    )
    parser.add_argument(
        "--map",
        metavar="REFERENCE=PATH",
        action="append",
        default=[],
        help="the YAML of a component that is registered in Azure, such as azureml:theirs:1=./theirs.yaml",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print one component or pipeline."""
    shown: Component | Pipeline
    if is_python_target(args.name):
        shown, target = read_python_pipeline(args.name), args.name
    else:
        path = find(args.name)
        stands = Stands(read_mapping(args.map, path.absolute().parent))
        shown = read(path, resolve=lambda name: catalogue.resolve(name) or stands.find(name))
        target = args.name if catalogue.resolve(args.name) == path else str(path)
    print(json.dumps(document(shown, target, args.map), indent=1) if args.json else page(shown, target, args.map))
    return 0


def find(name: str) -> Path:
    """The YAML file of a catalogue name or of a path.

    Raises:
        UnknownNameError: it is neither; the nearest name is offered.
    """
    known = catalogue.resolve(name)
    if known is not None or (Path(name).suffix in text.YAML and Path(name).is_file()):
        return known or Path(name)
    if name in catalogue.ENVIRONMENTS:
        raise UnknownNameError(
            f"{name!r} is an environment, neither a component nor a pipeline.",
            f"Its files are in {catalogue.environments()[name].parent}.",
        )
    if why := text.no_yaml(name):
        raise UnknownNameError(f"{why}.", "Give the YAML of a component or pipeline, or a name from `allranks list`.")
    close = text.nearest(name, (*catalogue.COMPONENTS, *catalogue.PIPELINES))
    raise UnknownNameError(f"{name!r} is no component or pipeline of the library{close}.", "Try `allranks list`.")


def document(shown: Component | Pipeline, target: str, mapped: Sequence[str] = ()) -> dict[str, Any]:
    """What ``--json`` prints: the same as the page, with the defaults, enums and ranges typed."""
    ranges = bound_ranges(shown) if isinstance(shown, Pipeline) else {}
    common: dict[str, Any] = {
        "kind": "component" if isinstance(shown, Component) else "pipeline",
        "name": _name(shown),
        "version": shown.version,
        "display_name": shown.display_name,
        "description": shown.description,
        "path": str(shown.source.file or target.partition(":")[0]),
        "inputs": {name: _input_document(ranges.get(name, port)) for name, port in shown.inputs.items()},
        "outputs": {
            n: {"type": o.type, "mode": o.mode, "description": o.description} for n, o in shown.outputs.items()
        },
        "example": example(shown, target, mapped),
    }
    if isinstance(shown, Component):
        return common | {"environment": _environment(shown), **_launch_document(shown.distribution, shown.resources)}
    return common | {"steps": {name: _step_document(step) for name, step in shown.steps.items()}}


def page(shown: Component | Pipeline, target: str, mapped: Sequence[str] = ()) -> str:
    """What is printed for people."""
    title = " ".join(filter(None, (_name(shown), shown.version)))
    parts = [title + (f": {shown.display_name}" if shown.display_name else "")]
    if isinstance(shown, Component):
        parts.append(f"  {launch(shown.distribution, shown.resources)}\n  environment {_environment(shown)}")
    parts[-1] += f"\n  {shown.source.file or target.partition(':')[0]}"
    if shown.description:
        parts.append(_filled(shown.description))
    ranges = bound_ranges(shown) if isinstance(shown, Pipeline) else {}
    parts.append("inputs\n" + _ports([_input_cells(ranges.get(name, port)) for name, port in shown.inputs.items()]))
    parts.append("outputs\n" + _ports([_output_cells(port) for port in shown.outputs.values()]))
    if isinstance(shown, Pipeline):
        parts.append(
            "steps\n" + text.rows([_step_cells(name, step) for name, step in shown.steps.items()], keep_whole=True)
        )
    parts.append(f"example\n  {example(shown, target, mapped)}")
    return "\n\n".join(parts)


def _name(shown: Component | Pipeline) -> str:
    """The name; a pipeline job need not have one and is then called like its file."""
    return shown.name or (shown.source.file.stem if shown.source.file else "")


def example(shown: Component | Pipeline, target: str, mapped: Sequence[str] = ()) -> str:
    """A command that runs it here: every required input stands for itself in capitals."""
    required = [f"{name}={name.upper()}" for name, port in shown.inputs.items() if port.required]
    maps = [word for one in mapped for word in ("--map", one)]
    return shlex.join(["allranks", "run", target, *required, *maps])


def launch(distribution: Distribution | None, resources: Resources) -> str:
    """How it is started, in words: ``pytorch, 2 nodes x 2 processes``; a binding is shown as ``<input>``."""
    return distribution_kind(distribution).launch_words(distribution or Distribution(""), resources.nodes)


def _launch_document(distribution: Distribution | None, resources: Resources) -> dict[str, Any]:
    kind = None if distribution is None else distribution.type
    return {
        "distribution": kind,
        "nodes": 1 if resources.nodes is None else resources.nodes,
        "processes": 1 if distribution is None else distribution.processes_per_node or 1,
    }


def _step_document(step: Step) -> dict[str, Any]:
    component = step.component
    common: dict[str, Any] = {
        "component": component.name,
        "inputs": {name: _value(value) for name, value in step.inputs.items()},
    }
    if step.sweep:
        goal, metric = step.sweep.objective
        space = {name: dict(search) for name, search in step.sweep.space.items()}
        common["sweep"] = {
            "algorithm": step.sweep.algorithm,
            "search_space": space,
            "goal": goal,
            "primary_metric": metric,
            "limits": dict(step.sweep.limits),
        }
    return common | (
        _launch_document(*_settings(step)) if isinstance(component, Component) else {"steps": len(component.steps)}
    )


def _settings(step: Step) -> tuple[Distribution | None, Resources]:
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
        "default": _value(port.default),
        "choices": list(port.enum),
        "min": port.min,
        "max": port.max,
        "description": port.description,
    }


def _value(value: object) -> object:
    return value.path if isinstance(value, Data) else plain_number(value)


def _environment(component: Component) -> str:
    environment = component.environment
    return environment.reference or str(environment.file or environment.inline or "none")


def _input_cells(port: Input) -> list[str]:
    return [port.name, port.type, _given(port), limits(port), " ".join(port.description.split())]


def _given(port: Input) -> str:
    if port.required:
        return "required"
    if port.default is None:
        return "optional"
    return f"default {_value(port.default)}" if port.default != "" else "default ''"


def bound_ranges(pipeline: Pipeline) -> dict[str, Input]:
    """The inputs of a pipeline, with the range and the choices of the ports that they feed where they have none.

    Of several ports the narrowest range counts: a value has to suit all of them.
    """
    found = dict(pipeline.inputs)
    for step in pipeline.steps.values():
        ports = bound_ranges(step.component) if isinstance(step.component, Pipeline) else step.component.inputs
        for name, value in step.inputs.items():
            bound = _BINDING.fullmatch(value) if isinstance(value, str) else None
            if bound and bound[1] in found and name in ports:
                found[bound[1]] = _narrowed(found[bound[1]], ports[name])
    return found


def _narrowed(port: Input, by: Input) -> Input:
    lows = [bound for bound in (port.min, by.min) if bound is not None]
    highs = [bound for bound in (port.max, by.max) if bound is not None]
    enum = tuple(choice for choice in port.enum if choice in by.enum) if port.enum and by.enum else port.enum or by.enum
    return replace(port, min=max(lows, default=None), max=min(highs, default=None), enum=enum)


def limits(port: Input) -> str:
    """The choices or the range of an input: ``sgd | adamw``, ``1 to 1000``, ``at least 0``; empty without any."""
    if port.enum:
        return " | ".join(map(str, port.enum))
    if port.min is not None and port.max is not None:
        return f"{port.min:g} to {port.max:g}"
    if port.min is not None:
        return f"at least {port.min:g}"
    return "" if port.max is None else f"at most {port.max:g}"


def _output_cells(port: Output) -> list[str]:
    return [port.name, port.type or "", " ".join(port.description.split())]


def _step_cells(name: str, step: Step) -> list[str]:
    steps = f"{len(step.component.steps)} steps" if isinstance(step.component, Pipeline) else launch(*_settings(step))
    return [name, step.component.name, f"{searched(step.sweep)}; each {steps}" if step.sweep else steps]


def searched(sweep: Sweep) -> str:
    """A sweep in words: ``random sweep of epochs, rate to maximize accuracy, at most 8 trials, 2 at a time``."""
    trials, together = (sweep.limits.get(name) for name in ("max_total_trials", "max_concurrent_trials"))
    most = f", at most {trials} trials" if trials else ""
    return (
        f"{sweep.algorithm} sweep of {', '.join(sweep.space)} to {' '.join(sweep.objective)}{most}"
        f"{f', {together} at a time' if together else ''}"
    )


def _ports(lines: list[list[str]]) -> str:
    """Ports as aligned rows; the last cell, the description, goes below its row."""
    heads = text.rows([cells[:-1] for cells in lines], keep_whole=True).splitlines() if lines else ["  none"]
    below = [_filled(cells[-1], indent=6) for cells in lines] or [""]
    return "\n".join(f"{head}\n{description}".rstrip() for head, description in zip(heads, below, strict=True))


def _filled(description: str, *, indent: int = 0) -> str:
    width = min(WIDTH, max(text.columns() or WIDTH, indent + 20))
    margin = " " * indent
    return textwrap.fill(" ".join(description.split()), width, initial_indent=margin, subsequent_indent=margin)

"""``allranks show NAME``: what a component or a pipeline takes, gives, and how it is started."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

from allranks import catalogue
from allranks.azure.python_target import is_python_target, read_python_pipeline
from allranks.cli import text
from allranks.cli.inputs import TARGET_CHOICES, add_map_argument
from allranks.cli.show_document import (
    bound_ranges,
    environment_name,
    example_command,
    launch_settings,
    plain_default,
    show_document,
    shown_name,
)
from allranks.errors import UnknownNameError
from allranks.local.assets import CloudStandIns, read_mapping
from allranks.local.checkout_assets import CheckoutAssets
from allranks.spec import Component, Distribution, Input, Output, Pipeline, Resources, Step, Sweep, read_spec
from allranks.spec.distribution import distribution_kind
from allranks.spec.values import plain_number

HELP = "show the inputs, outputs, distribution and an example of a component or pipeline"

_WIDTH = 100
"""Descriptions are broken at this column, or at the edge of a terminal that is narrower."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help=TARGET_CHOICES)
    add_map_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print one component or pipeline."""
    shown: Component | Pipeline
    if is_python_target(args.name):
        shown, target = read_python_pipeline(args.name), args.name
    else:
        path = _find_shown(args.name)
        folder = path.absolute().parent
        stands = CloudStandIns(read_mapping(args.map, folder), checkout=CheckoutAssets.around(folder))
        shown = read_spec(path, resolve=stands.find_component)
        target = args.name if catalogue.resolve(args.name) == path else str(path)
    text.print_output(show_document(shown, target, args.map) if args.json else _shown_page(shown, target, args.map))
    return 0


def _find_shown(name: str) -> Path:
    """The YAML file of a catalogue name or of a path; raises UnknownNameError, with the nearest, for neither."""
    known = catalogue.resolve(name)
    if known is not None or (Path(name).suffix in text.YAML_SUFFIXES and Path(name).is_file()):
        return known or Path(name)
    if name in catalogue.ENVIRONMENTS:
        hint = f"Its files are in {catalogue.environment_files()[name].parent}."
        raise UnknownNameError(f"{name!r} is an environment, neither a component nor a pipeline.", hint)
    if why := text.why_no_yaml(name):
        raise UnknownNameError(f"{why}.", "Give the YAML of a component or pipeline, or a name from `allranks list`.")
    close = text.name_suggestion(name, (*catalogue.COMPONENTS, *catalogue.PIPELINES))
    raise UnknownNameError(f"{name!r} is no component or pipeline of the library{close}.", "Try `allranks list`.")


def _shown_page(shown: Component | Pipeline, target: str, mapped: Sequence[str]) -> str:
    """What is printed for people."""
    title = " ".join(filter(None, (shown_name(shown), shown.version)))
    parts = [title + (f": {shown.display_name}" if shown.display_name else "")]
    if isinstance(shown, Component):
        parts.append(f"  {_launch_words(shown.distribution, shown.resources)}\n  environment {environment_name(shown)}")
    parts[-1] += f"\n  {shown.source.file or target.partition(':')[0]}"
    if shown.description:
        parts.append(_filled(shown.description))
    ranges = bound_ranges(shown) if isinstance(shown, Pipeline) else {}
    parts.append("inputs\n" + _ports([_input_cells(ranges.get(name, port)) for name, port in shown.inputs.items()]))
    parts.append("outputs\n" + _ports([_output_cells(port) for port in shown.outputs.values()]))
    if isinstance(shown, Pipeline):
        steps = [_step_cells(name, step) for name, step in shown.steps.items()]
        parts.append(f"steps\n{text.aligned_rows(steps, keep_whole=True)}")
    parts.append(f"example\n  {example_command(shown, target, mapped)}")
    return "\n\n".join(parts)


def _launch_words(distribution: Distribution | None, resources: Resources) -> str:
    """How it is started, in words: ``pytorch, 2 nodes x 2 processes``; a binding is shown as ``<input>``."""
    return distribution_kind(distribution).launch_words(distribution or Distribution(""), resources.nodes)


def _input_cells(port: Input) -> list[str]:
    return [port.name, port.type, _given(port), limits(port), " ".join(port.description.split())]


def _given(port: Input) -> str:
    if port.required:
        return "required"
    if port.default is None:
        return "optional"
    return f"default {plain_default(port.default)}" if port.default != "" else "default ''"


def limits(port: Input) -> str:
    """The choices or the range of an input: ``sgd | adamw``, ``1 to 1000``, ``at least 0``; empty without any."""
    if port.enum:
        return " | ".join(map(str, port.enum))
    if port.min is not None and port.max is not None:
        return f"{plain_number(port.min)} to {plain_number(port.max)}"
    if port.min is not None:
        return f"at least {plain_number(port.min)}"
    return "" if port.max is None else f"at most {plain_number(port.max)}"


def _output_cells(port: Output) -> list[str]:
    return [port.name, port.type or "", " ".join(port.description.split())]


def _step_cells(name: str, step: Step) -> list[str]:
    inner = step.component
    steps = f"{len(inner.steps)} steps" if isinstance(inner, Pipeline) else _launch_words(*launch_settings(step))
    return [name, inner.name, f"{_sweep_words(step.sweep)}; each {steps}" if step.sweep else steps]


def _sweep_words(sweep: Sweep) -> str:
    """A sweep in words: ``random sweep of epochs, rate to maximize accuracy, at most 8 trials, 2 at a time``."""
    trials, together = (sweep.limits.get(name) for name in ("max_total_trials", "max_concurrent_trials"))
    most = f", at most {trials} trials" if trials else ""
    return (
        f"{sweep.algorithm} sweep of {', '.join(sweep.space)} to {' '.join(sweep.objective)}{most}"
        f"{f', {together} at a time' if together else ''}"
    )


def _ports(lines: list[list[str]]) -> str:
    """Ports as aligned rows; the last cell, the description, goes below its row."""
    heads = text.aligned_rows([cells[:-1] for cells in lines], keep_whole=True).splitlines() if lines else ["  none"]
    below = [_filled(cells[-1], indent=6) for cells in lines] or [""]
    return "\n".join(f"{head}\n{description}".rstrip() for head, description in zip(heads, below, strict=True))


def _filled(description: str, *, indent: int = 0) -> str:
    width = min(_WIDTH, max(text.terminal_width() or _WIDTH, indent + 20))
    margin = " " * indent
    return textwrap.fill(" ".join(description.split()), width, initial_indent=margin, subsequent_indent=margin)

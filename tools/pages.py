"""Markdown for docs/: the components' pages, the page of the command line, and the tables of sizes and builds."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from allranks.catalogue import first_sentence
from allranks.cli.show_document import example_inputs
from allranks.sizes import BuildTable, VMSize, build_table, judge_image, runs_on
from allranks.spec import Component, Input, Output
from allranks.spec.distribution import distribution_kind
from allranks.spec.values import plain_number

_MADE = "<!-- Made from {} by `make renew`. Edit the source, not this page. -->"


def component_page(component: Component) -> str:
    """The page of a component: what Designer shows, the outputs, and how to use it in YAML, in Python and here."""
    parts = [
        f"# {component.display_name or component.name}",
        _MADE.format(f"components/{component.name}/component.yaml"),
        " ".join(component.description.split()),
        _markdown_table(("", ""), _facts(component)),
        "## Inputs",
        _markdown_table(("input", "type", "default", "allowed", ""), map(_input, component.inputs.values()))
        if component.inputs
        else "None.",
        "## Outputs",
        _markdown_table(("output", "type", "mode", ""), map(_output, component.outputs.values())),
        "## In YAML",
        f"```yaml\n{yaml_step(component)}```",
        "## In Python",
        f"```python\n{python_step(component)}```",
        "## On your machine",
        f"```\n{_local_command(component)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(component: Component) -> list[Sequence[str]]:
    facts = {
        "name": f"`{component.name}`",
        "version": component.version,
        "distribution": distribution_kind(component.distribution).title,
        "environment": f"`{component.environment.reference}`",
        "tags": ", ".join(f"{name}: {value}" for name, value in component.tags.items()),
    }
    return [fact for fact in facts.items() if fact[1]]


def _input(port: Input) -> Sequence[str]:
    return (f"`{port.name}`", port.type, _default(port), _allowed(port), " ".join(port.description.split()))


def _default(port: Input) -> str:
    if port.required:
        return "required"
    return "optional" if port.default is None else f"`{plain_number(port.default)}`"


def _allowed(port: Input) -> str:
    if port.enum:
        return ", ".join(f"`{choice}`" for choice in port.enum)
    if port.min is not None and port.max is not None:
        return f"{port.min:g} to {port.max:g}"
    return f"from {port.min:g}" if port.min is not None else "" if port.max is None else f"up to {port.max:g}"


def _output(port: Output) -> Sequence[str]:
    return (f"`{port.name}`", port.type or "", port.mode or "", " ".join(port.description.split()))


def yaml_step(component: Component) -> str:
    """The component as a step of a pipeline's YAML, with what has to be given bound to the pipeline's inputs."""
    bound = [port.name for port in example_inputs(component.inputs)]
    lines = ["jobs:", f"  {component.name}:", "    type: command"]
    lines.append(f"    component: azureml:{component.name}:{component.version}")
    lines += ["    inputs:", *(f"      {name}: ${{{{parent.inputs.{name}}}}}" for name in bound)] if bound else []
    distribution = component.distribution
    if distribution is not None:
        lines += ["    resources:", "      instance_count: 2"]
        lines += [f"      shm_size: {component.resources.shm_size}"] if component.resources.shm_size else []
        lines += ["    distribution:", f"      type: {distribution.type}"]
        servers = distribution.parameter_server_count
        lines += [f"      parameter_server_count: {servers}"] if servers else []
        kind = distribution_kind(distribution)
        own_processes = kind.starts_processes and "processes_per_node" not in component.inputs
        lines += ["      process_count_per_instance: 4"] if own_processes else []
    return "\n".join(lines) + "\n"


def python_step(component: Component) -> str:
    """A pipeline function of the SDK with the component as its only step."""
    required = example_inputs(component.inputs)
    parameters = ", ".join(f"{port.name}: {_annotation(port)}" for port in required)
    arguments = ", ".join(f"{port.name}={port.name}" for port in required)
    imports = "from azure.ai.ml import Input\n" if any(port.is_data for port in required) else ""
    names = "components"
    lines = [f"step = components.{component.name}({arguments})"]
    if component.distribution is not None:
        names += ", scale"
        processes = ", processes_per_node=4" if distribution_kind(component.distribution).starts_processes else ""
        lines.append(f"scale(step, nodes=2{processes})")
    first = next(iter(component.outputs), None)
    lines.append(f'return {{"{first}": step.outputs.{first}}}' if first else "return {}")
    body = textwrap.indent("\n".join(lines), "    ")
    return f"""\
{imports}from azure.ai.ml.dsl import pipeline

from allranks import {names}


@pipeline
def my_pipeline({parameters}):
{body}
"""


def _annotation(port: Input) -> str:
    if port.is_data:
        return f'Input(type="{port.type}")'
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}[port.type]


def _local_command(component: Component) -> str:
    """The command that runs it here, with what has to be given in capitals."""
    required = [f"{port.name}={port.name.upper()}" for port in example_inputs(component.inputs)]
    processes = 2 if distribution_kind(component.distribution).starts_processes else 1
    scaled = [f"--scale {component.name}=2x{processes}"] if component.distribution else []
    return " ".join(["allranks run", component.name, *required, *scaled])


def index_page(components: Sequence[Component]) -> str:
    """The list of the components' pages."""
    table = _markdown_table(("", "name", "distribution", ""), map(_index_row, components))
    return "\n\n".join(["# Components", _MADE.format("the components' YAML"), table]) + "\n"


def _index_row(one: Component) -> Sequence[str]:
    kind = one.distribution.type if one.distribution else "none"
    return (f"[{one.display_name}]({one.name}.md)", f"`{one.name}`", kind, first_sentence(one.description))


def command_line_page(verbs: Mapping[str, argparse.ArgumentParser]) -> str:
    """The page of the command line: each verb and its commands with their arguments, as ``--help`` has them."""
    listed = _markdown_table(
        ("", ""), ((f"[`{name}`](#allranks-{name})", verb.description or "") for name, verb in verbs.items())
    )
    parts = [
        "# The command line",
        _MADE.format("the parsers in allranks/cli"),
        "Exit codes: 0 all succeeded, 1 a step failed, 2 what was asked for is wrong, 130 after Ctrl-C.",
        listed,
        *(part for verb in verbs.values() for part in _verb_parts(verb, 2)),
    ]
    return "\n\n".join(parts) + "\n"


def _verb_parts(parser: argparse.ArgumentParser, level: int, above: Collection[str] = ()) -> Iterator[str]:
    """The heading, the sentence and the arguments of a verb, then what commands below it have besides."""
    yield f"{'#' * level} {parser.prog}"
    yield f"{_sentence(parser.description or '')}."
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]  # noqa: SLF001 argparse has no other way
    commands = {name: below for one in actions if isinstance(one.choices, dict) for name, below in one.choices.items()}
    found = {_argument(one): _explained(one, parser) for one in actions if not isinstance(one.choices, dict)}
    if rows := [row for row in found.items() if row[0] not in above]:
        yield _markdown_table(("argument", ""), rows)
    for below in commands.values():
        yield from _verb_parts(below, level + 1, found)


def _argument(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar or ())
    value = "" if action.nargs == 0 else metavar or "|".join(map(str, action.choices or ())) or action.dest.upper()
    names = ", ".join(f"{name} {value}".strip() for name in action.option_strings) or value
    return f"`{names}`"


def _explained(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """The help of an argument, with what argparse puts into it."""
    values = {**vars(action), "prog": parser.prog}
    return _sentence((action.help or "") % values)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def sizes_table(sizes: Iterable[VMSize]) -> str:
    """The VM sizes as a table; those that are retired come last."""
    head = ("size", "GPUs", "GB each", "InfiniBand", "environments", "source")
    return _markdown_table(head, map(_size, sorted(sizes, key=lambda size: bool(size.retired))))


def builds_table(table: BuildTable, sizes: Iterable[VMSize]) -> str:
    """The builds of the images: for which GPUs of today's sizes they have code, and which drivers run them."""
    today = {size.gpu for size in sizes if not size.retired} - table.arm_processors
    known = {gpu: one for gpu, one in table.capabilities.items() if one and gpu in today}
    rows = []
    for build in table.builds.values():
        gpus = ", ".join(gpu for gpu, one in known.items() if runs_on(one, build.machine_code))
        later = ", ".join(gpu for gpu, one in known.items() if runs_on(one, build.ptx))
        gpus += f"; {later} with a driver of series {build.ptx_driver} or newer" if later else ""
        rows.append((build.label, build.cuda, gpus, f"{build.driver} and newer", build.why))
    return _markdown_table(("framework", "CUDA", "GPUs", "drivers", "why"), rows)


def _size(size: VMSize) -> Sequence[str]:
    name = f"`{size.name}`" + (f" (retired {size.retired})" if size.retired else "")
    gpus = f"{size.gpus} {size.gpu}" if size.gpus else ""
    source = f"[{size.series}]({size.source})"
    return (name, gpus, str(size.gpu_memory or ""), _infiniband_words(size), images_in_words(size), source)


def images_in_words(size: VMSize) -> str:
    """Return which images run on a size, such as ``all`` or ``none: its GPUs are AMD's ...``; empty without GPUs."""
    if not size.gpu:
        return ""
    verdicts = {image: judge_image(image, size) for image, builds in build_table().images.items() if builds}
    unsuited = [image for image, verdict in verdicts.items() if not verdict.suits]
    if len(unsuited) == len(verdicts):
        return f"none: {verdicts[unsuited[0]].reason}"
    some = f"all but {', '.join(unsuited)}" if unsuited else "all"
    notes = dict.fromkeys(verdict.reason for verdict in verdicts.values() if verdict.suits and verdict.reason)
    return "; ".join([some, *notes])


def _infiniband_words(size: VMSize) -> str:
    """The InfiniBand of a size in words: ``8 x 400 Gb/s``; empty for none."""
    if size.has_unusable_rdma:
        return "unusable: no SR-IOV"
    if not size.infiniband:
        return ""
    return f"{size.link_speed} Gb/s" if size.links == 1 else f"{size.links} x {size.link_speed} Gb/s"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

"""Checks of one command component by itself: its ports, command, files and counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.check_counts import check_counts
from allranks.spec.check_parallel import check_parallel
from allranks.spec.check_script import check_script
from allranks.spec.expressions import (
    Reference,
    bracket_faults,
    declared_name,
    find_references,
    near_references,
    single_reference,
)
from allranks.spec.model import Component, Input, Output, Pipeline, Source
from allranks.spec.needs import Distribution, Resources
from allranks.spec.parallel import ParallelComponent
from allranks.spec.script_inputs import ScriptInputs
from allranks.spec.section import a_or_an, shown_value
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import check_command_values, check_value, default_values


def check_component_name(component: Component | Pipeline) -> Iterator[Problem]:
    """Check the name under which a component is registered; inside a pipeline Azure ML does not look at it."""
    name = component.name
    if not name:
        yield component.source.problem("name", "has no name.", "Write name: my_component.")
    elif fault := name_fault(name):
        yield component.source.problem("name", fault)


def name_fault(name: str) -> str:
    """Why nothing can be registered as a component under this name; empty if it can."""
    if schema.COMPONENT_NAME.fullmatch(name) and len(name) <= 255:
        return ""
    return f"'{name}' is no component's name: lower-case letters, digits and underscores, a letter first, at most 255."


def check_command(component: Component) -> list[Problem]:
    """Check everything of a component but its name."""
    ports = [
        *check_ports(component.source, component.inputs, "inputs"),
        *check_ports(component.source, component.outputs, "outputs"),
        *check_inputs(component.source, component.inputs),
        *_check_optional_defaults(component),
    ]
    if not component.runs_command:
        return ports
    return [
        *ports,
        *_check_text(component),
        *_check_environment(component),
        *_check_files(component),
        *check_script(component),
        *check_counts(component.source, component.distribution, _own_resources(component), component.timeout),
        *_check_bindings(component),
        *_check_default_quotes(component),
        *(check_parallel(component) if isinstance(component, ParallelComponent) else ()),
    ]


def _own_resources(component: Component) -> Resources:
    """Its resources; the -1 nodes of a parallel component are those that its step asks for."""
    left_open = isinstance(component, ParallelComponent) and component.resources.nodes == -1
    return replace(component.resources, nodes=None) if left_open else component.resources


def check_ports(source: Source, ports: Mapping[str, Input] | Mapping[str, Output], kind: str) -> Iterator[Problem]:
    """Check the names of inputs or outputs: pattern, Python's keywords, unique whatever the case."""
    spellings = defaultdict(list)
    for name in ports:
        spellings[name.lower()].append(name)
        if not schema.PORT_NAME.fullmatch(name):
            rule = "letters, digits and underscores, no digit first; a group's member is written group.member"
            yield source.problem(f"{kind}.{name}", f"'{name}' is no name of a port: {rule}.")
        elif any(iskeyword(part) for part in name.split(".")):
            message = f"'{name}' is a keyword of Python, so the port cannot be used from Python."
            yield source.problem(f"{kind}.{name}", message, "Choose another name.")
    for names in spellings.values():
        if len(names) > 1:
            message = f"{' and '.join(map(repr, names))} differ in case only, and Azure ML takes them for one."
            yield source.problem(f"{kind}.{names[-1]}", message)


def check_inputs(source: Source, inputs: Mapping[str, Input]) -> Iterator[Problem]:
    """Check declarations: ranges, choices, and defaults against both."""
    for name, declared in inputs.items():
        where = f"inputs.{name}"
        if declared.is_data:
            continue
        ranged = declared.type in ("integer", "number")
        for key, bound in (("min", declared.min), ("max", declared.max)):
            if bound is not None and not ranged:
                message = f"'{key}' applies to integers and numbers, and this is {a_or_an(declared.type)}."
                yield source.problem(f"{where}.{key}", message)
        if ranged and declared.min is not None and declared.max is not None and declared.min > declared.max:
            least, most = shown_value(declared.min), shown_value(declared.max)
            yield source.problem(f"{where}.min", f"min {least} is above max {most}, so no value is allowed.")
        faults_of_enum = list(_check_enum(source, declared))
        yield from faults_of_enum
        if declared.default is not None and not faults_of_enum:
            typed = check_value(declared, declared.default)
            place = f"{where}.default" if source.place(f"{where}.default") in source.lines else where
            if isinstance(typed, Problem):
                # The SDK takes a default that is no choice, and who gives a value does not need it; `StepCheck` asks.
                severity = "warning" if declared.enum else "error"
                yield source.problem(place, f"the default {typed.message}", typed.hint, severity)
            yield from check_spelling(source, place, declared)


def _check_enum(source: Source, declared: Input) -> Iterator[Problem]:
    where = f"inputs.{declared.name}.enum"
    if declared.enum and declared.type == "boolean":
        hint = "Make it a string with the choices in quotes."
        yield source.problem(where, "'enum' does not apply to a boolean.", hint)
        return
    for index, choice in enumerate(declared.enum):
        if not isinstance(choice, str):
            written = source.texts.get(source.place(f"{where}.{index}"), str(choice))
            message = f"{shown_value(choice)} is not a text."
            yield source.problem(f"{where}.{index}", message, f"Write '{written}' in quotes.")
        elif declared.type != "string":
            typed = check_value(replace(declared, enum=()), choice)
            if isinstance(typed, Problem):
                yield source.problem(f"{where}.{index}", f"the choice {typed.message}")
    if len(set(map(str, declared.enum))) < len(declared.enum):
        yield source.problem(where, "has a choice twice.", severity="warning")


def check_spelling(source: Source, place: str, declared: Input) -> Iterator[Problem]:
    """Warn where a string input gets what YAML made of a text: 1.10 becomes 1.1, and yes becomes True."""
    written = source.texts.get(source.place(place))
    if declared.type == "string" and written is not None and not declared.enum:
        message = f"YAML does not read {written} as a text, and Azure ML gets something else."
        yield source.problem(place, message, f"Write '{written}' in quotes.", severity="warning")


def _check_optional_defaults(component: Component) -> Iterator[Problem]:
    both = [name for name, one in component.inputs.items() if one.optional and one.default is not None]
    if both:
        names = ", ".join(both[:5]) + (f" and {len(both) - 5} more" if len(both) > 5 else "")
        message = f"optional and with a default: {names}. The default always applies, so 'optional' has no effect."
        yield component.source.problem("inputs", message, severity="warning")


def _check_text(component: Component) -> Iterator[Problem]:
    source, command = component.source, component.command
    if not command.strip() and not isinstance(component, ParallelComponent):
        yield source.problem("command", "has no command.", "Write command: python my_script.py.")
        return
    for fault in bracket_faults(command):
        yield source.problem("command", fault)
    for written, meant in near_references(command):
        if meant.name in _declared(component, meant.scope):
            message = f"'{written}' is no reference; the shell gets it as it stands."
            yield source.problem("command", message, f"Write {meant}.", "warning")
    used: dict[str, set[str]] = {"inputs": set(), "outputs": set()}
    for reference in find_references(command):
        yield from _check_reference(component, reference)
        if reference.scope in used:
            used[reference.scope].add(declared_name(reference.name, _declared(component, reference.scope)))
    if component.is_generated:
        return
    unused = [name for name, one in component.inputs.items() if name not in used["inputs"] and not one.is_data]
    read_by_scripts = ScriptInputs(component) if unused else ()
    for name in unused:
        if name not in read_by_scripts:
            message = "the command does not use this input."
            yield source.problem(f"inputs.{name}", message, f"Add --{name} '${{{{inputs.{name}}}}}'.", "warning")


def _declared(component: Component, scope: str) -> Mapping[str, Input] | Mapping[str, Output]:
    return component.inputs if scope == "inputs" else component.outputs


def _check_reference(component: Component, reference: Reference) -> Iterator[Problem]:
    source = component.source
    if reference.scope in ("inputs", "outputs"):
        ports = _declared(component, reference.scope)
        name = declared_name(reference.name, ports)
        if name not in ports:
            message = f"{reference}: there is no {reference.scope[:-1]} '{reference.name}'."
            yield source.problem("command", message, did_you_mean(reference.name, ports, reference.scope))
        elif reference.scope == "inputs" and not reference.optional and not _has_value(component.inputs[name]):
            message = f"{reference} is optional, and stands outside $[[ ]]; Azure ML refuses this."
            yield source.problem("command", message, f"Write $[[--{name} '{reference}']].")
    elif reference.scope == "search_space":
        if source.file is not None and not source.prefix.endswith("trial"):
            hint = f"Declare an input {reference.name}, which a sweep can search, and write its reference here."
            yield source.problem("command", f"{reference} is for a trial that is written in place in a sweep.", hint)
    else:
        hint = "A command knows ${{inputs.NAME}} and ${{outputs.NAME}}."
        first = reference.name.split(".")[0]
        if not reference.scope and first:
            hint = did_you_mean(first, ("inputs", "outputs", "search_space"), "words")
        yield source.problem("command", f"{reference} means nothing in a command.", hint)


def _has_value(declared: Input) -> bool:
    """Whether the command always has a value: a default applies to an optional input too."""
    return not declared.optional or declared.default is not None


def _check_environment(component: Component) -> Iterator[Problem]:
    environment = component.environment
    if environment.file is not None and not environment.file.is_file():
        yield component.source.problem("environment", f"there is no file '{environment.file}'.")
    if environment.reference is None and environment.file is None and environment.inline is None:
        message = "has no environment, which Azure ML demands."
        yield component.source.problem("environment", message, "Write environment: azureml:NAME:VERSION.")


def _check_files(component: Component) -> Iterator[Problem]:
    source, code = component.source, component.code
    if code is not None and not code.exists():
        yield source.problem("code", f"there is no file or folder '{code}'.")
    landed: dict[str, Path] = {}
    for index, path in enumerate(component.includes):
        where = f"additional_includes.{index}"
        zipped = path.suffix == ".zip" and path.with_suffix("").is_dir()  # Azure ML zips the folder of that name
        if not path.exists() and not zipped:
            yield source.problem(where, f"there is no file or folder '{path}'.")
        name = path.resolve().name
        if not name:
            yield source.problem(where, "the root of the file system cannot be included.")
        elif name in landed:
            yield source.problem(where, f"'{path}' and '{landed[name]}' would both become '{name}' in the snapshot.")
        elif code is not None and _taken(code, name, path):
            yield source.problem(where, f"'{name}' is already in the code folder '{code}'.", "Remove one of them.")
        landed.setdefault(name, path)


def _taken(code: Path, name: str, include: Path) -> bool:
    target = code / name if code.is_dir() else code
    if target.name != name or not target.exists():
        return False
    return not (target.is_symlink() and target.resolve() == include.resolve())


def _check_bindings(component: Component) -> Iterator[Problem]:
    """The SDK refuses bindings in a component's own numbers; on a pipeline's step it takes them."""
    distribution = component.distribution or Distribution("")
    counts = {f"distribution.{key}": count for key, count in distribution.counts.items()}
    counts |= {"resources.instance_count": component.resources.nodes, "limits.timeout": component.timeout}
    for where, value in counts.items():
        reference = single_reference(value)
        if reference is not None and reference.scope != "parent.inputs":
            message = f"'{value}' is a binding, and Azure ML takes a number here."
            hint = "Bind it on the pipeline's step, with ${{parent.inputs.NAME}}."
            yield component.source.problem(where, message, hint)


def _check_default_quotes(component: Component) -> Iterator[Problem]:
    for problem in check_command_values(component, default_values(component)):
        yield component.source.problem(f"{problem.where}.default", f"the default {problem.message}", problem.hint)

"""What the command line changes in a pipeline before it is checked: values of inputs, and the scale of steps."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from allranks.errors import Problem, SpecError, UnknownNameError, UsageError
from allranks.spec import Component, Data, Input, Pipeline, Step, check_value
from allranks.spec.distribution import distribution_kind
from allranks.spec.parallel import ParallelComponent

PROCESSES_PER_NODE_INPUT = "processes_per_node"  # of a component that starts its own processes on each node
MIN_NODES_INPUT = "min_nodes"  # the same, where its torchrun goes on when others are lost


def apply_values(pipeline: Pipeline, values: Mapping[str, str]) -> tuple[Pipeline, list[Problem]]:
    """Set inputs by name: ``epochs``, ``group.name``, ``step.input``, ``outer.inner.input``, the only step's ``input``.

    Returns:
        The pipeline with these values, and what is wrong with those that it could not take.

    Raises:
        UnknownNameError: nothing is called so; the nearest names are offered.
        UsageError: the name could be two things.
    """
    problems: list[Problem] = []
    for name, text in values.items():
        if text != text.encode(errors="replace").decode():
            raise UsageError(f"{name}={text!r} is not UTF-8 text, and no YAML and no page can hold it.")
        try:
            pipeline = _apply_value(pipeline, _whole_name(pipeline, name), text)
        except SpecError as error:
            problems += error.problems
    return pipeline, problems


def _apply_value(pipeline: Pipeline, name: str, text: str) -> Pipeline:
    if name in pipeline.inputs:  # an input, or a group's member, wins over a step of the same name
        declared = replace(pipeline.inputs[name], default=_typed(name, pipeline.inputs[name], text), optional=False)
        return replace(pipeline, inputs=MappingProxyType({**pipeline.inputs, name: declared}))
    places = [(step, inner) for step, inner, _ in _step_inputs(pipeline) if f"{step}.{inner}" == name]
    if len(places) > 1:
        meanings = " or ".join(f"input {inner!r} of step {step!r}" for step, inner in places)
        raise UsageError(f"{name!r} could be {meanings}.", "Rename one of them.")
    if not places:
        raise UnknownNameError(
            f"{name!r} is no input of {_called(pipeline)}{_nearest(name, input_names(pipeline))}.",
            f"The pipeline's inputs: {', '.join(pipeline.inputs) or 'none'}. A step's: STEP.INPUT=VALUE.",
        )
    step_name, inner = places[0]

    def change(step: Step) -> Step:
        value = _typed(name, step.component.inputs[inner], text)
        return replace(step, inputs=MappingProxyType({**step.inputs, inner: value}))

    return change_step(pipeline, step_name, change)


def _whole_name(pipeline: Pipeline, name: str) -> str:
    """``step.input`` for an input of the only step that is none of the pipeline's; any other name as it is."""
    step = next(iter(pipeline.steps.values()), None)
    if len(pipeline.steps) != 1 or step is None or name in pipeline.inputs or name not in step.component.inputs:
        return name
    return f"{step.name}.{name}"


def input_names(pipeline: Pipeline) -> list[str]:
    """Everything that a value can be given to: the pipeline's inputs and, as STEP.INPUT, those of its steps."""
    return [*pipeline.inputs, *(f"{step}.{inner}" for step, inner, _ in _step_inputs(pipeline))]


def absolute_values(pipeline: Pipeline, values: Mapping[str, str]) -> dict[str, str]:
    """The values with the paths of data inputs absolute, from the working folder; unknown names stay as they are."""
    steps = {f"{step}.{inner}": declared for step, inner, declared in _step_inputs(pipeline)}
    declared = {**steps, **pipeline.inputs}
    return {
        name: _absolute(text)
        if (whole := _whole_name(pipeline, name)) in declared and declared[whole].is_data
        else text
        for name, text in values.items()
    }


def given_names(pipeline: Pipeline, values: Mapping[str, str], scale: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Under what each input was given, by its whole name: ``train.epochs`` as ``epochs``, or by which option."""
    named = {_whole_name(pipeline, name): name for name in values}
    scaled = {
        f"{step}.{PROCESSES_PER_NODE_INPUT}": f"--scale {step}={nodes}x{each}" for step, (nodes, each) in scale.items()
    }
    return {**named, **scaled}


def _absolute(text: str) -> str:
    """A path as an absolute one, from the working folder; an address as it is, and no path too."""
    is_path = text.strip() and "://" not in text and not text.startswith("azureml:")
    return str(Path(text).expanduser().resolve()) if is_path else text


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3)
    return f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""


def _called(pipeline: Pipeline) -> str:
    """The pipeline's name; that of a job is optional, and then its file's is what a user knows."""
    return pipeline.name or (pipeline.source.file.name if pipeline.source.file else "the pipeline")


def _step_inputs(pipeline: Pipeline) -> list[tuple[str, str, Input]]:
    """Every input of every step, nested ones with their dotted names."""
    return [(name, inner, one) for name, step in all_steps(pipeline) for inner, one in step.component.inputs.items()]


def _typed(name: str, declared: Input, text: str) -> str | int | float | bool | Data:
    """The text of the command line as the input's type; a path becomes absolute, from the working folder."""
    if declared.is_data and not text.strip():
        raise SpecError([Problem("is empty: a path is missing behind the =.", name)])
    if declared.is_data:
        return Data(_absolute(text))
    value = check_value(declared, text)
    if isinstance(value, Problem):
        raise SpecError([replace(value, where=name, file=None, line=None)])
    return value


def change_step(pipeline: Pipeline, name: str, change: Callable[[Step], Step]) -> Pipeline:
    """A copy of the pipeline in which one step, nested ones by their dotted name, has been through ``change``."""
    head, _, rest = name.partition(".")
    if head not in pipeline.steps:
        known = [step for step, _ in all_steps(pipeline)]
        message = f"{name!r} is no step of {_called(pipeline)}{_nearest(name, known)}."
        raise UnknownNameError(message, f"Steps: {', '.join(known)}.")
    step = pipeline.steps[head]
    if rest:
        if not isinstance(step.component, Pipeline):
            raise UnknownNameError(f"step {head!r} is not a pipeline, so there is no {name!r}.")
        step = replace(step, component=change_step(step.component, rest, change))
    else:
        step = change(step)
    return replace(pipeline, steps=MappingProxyType({**pipeline.steps, head: step}))


def all_steps(pipeline: Pipeline, prefix: str = "") -> list[tuple[str, Step]]:
    """Every step with its dotted name, nested pipelines before their own steps."""
    found = []
    for name, step in pipeline.steps.items():
        found.append((prefix + name, step))
        if isinstance(step.component, Pipeline):
            found += all_steps(step.component, f"{prefix}{name}.")
    return found


def named_scale(pipeline: Pipeline, scale: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The scale with the name of the only step, or of the only one with a distribution, in place of an empty name.

    Raises:
        UsageError: it could be several steps.
    """
    if "" not in scale:
        return dict(scale)
    steps = {name: step for name, step in all_steps(pipeline) if isinstance(step.component, Component)}
    ranked = [name for name, step in steps.items() if step.distribution or _own_distribution(step)]
    named = list(steps) if len(steps) == 1 else ranked
    nodes, processes = scale[""]
    if len(named) != 1:
        message = f"--scale {nodes}x{processes} names no step, and {_called(pipeline)} has several."
        choice = (named or list(steps))[0]
        raise UsageError(message, f"Write --scale {choice}={nodes}x{processes}. Steps: {', '.join(steps)}.")
    return {named[0] if name == "" else name: counts for name, counts in scale.items()}


def _own_distribution(step: Step) -> bool:
    return isinstance(step.component, Component) and step.component.distribution is not None


def apply_scale(pipeline: Pipeline, scale: Mapping[str, tuple[int, int]]) -> Pipeline:
    """Set nodes and processes per node of steps, over whatever the pipeline says or binds.

    Raises:
        UnknownNameError: no such step.
        UsageError: a count below 1, or one that the step's distribution cannot have.
    """
    for name, (nodes, processes) in scale.items():
        if nodes < 1 or processes < 1:
            raise UsageError(f"--scale {name}={nodes}x{processes}: nodes and processes start at 1.")
        pipeline = change_step(pipeline, name, partial(_scaled, name=name, nodes=nodes, processes=processes))
    return pipeline


def _scaled(step: Step, name: str, nodes: int, processes: int) -> Step:
    if not isinstance(step.component, Component):
        message = f"--scale {name}: it is a pipeline, which has no ranks of its own."
        inner = ", ".join(f"{name}.{inner}" for inner in step.component.steps)
        raise UsageError(message, f"Its steps: {inner}.")
    distribution = step.distribution or step.component.distribution
    resources = replace(step.resources, nodes=nodes)
    if isinstance(step.component, ParallelComponent):
        workers = replace(step.component.settings, max_concurrency_per_instance=processes)
        return replace(step, resources=resources, component=replace(step.component, settings=workers))
    if PROCESSES_PER_NODE_INPUT in step.component.inputs:
        inputs = MappingProxyType({**step.inputs, PROCESSES_PER_NODE_INPUT: processes})
        return replace(step, resources=resources, inputs=inputs)
    kind = distribution_kind(distribution)
    if fault := kind.scale_fault(nodes, processes):
        raise UsageError(f"--scale {name}={nodes}x{processes}: {fault}")
    scaled = None if distribution is None else kind.scaled(distribution, nodes, processes)
    return replace(step, resources=resources, distribution=scaled)

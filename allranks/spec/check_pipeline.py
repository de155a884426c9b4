"""Checks of a pipeline as a whole: its own inputs and outputs, its steps' names and components, cycles."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.check_command import check_command, check_inputs, check_ports
from allranks.spec.check_step import StepCheck, check_local
from allranks.spec.expressions import single_reference
from allranks.spec.graph import find_cycle
from allranks.spec.model import Data, Output, Pipeline, Source, Step
from allranks.spec.values import Values, default_values, given_values


def check_pipeline(pipeline: Pipeline, given: Values, seen: set[int] | None = None) -> Iterator[Problem]:
    """Yield what is wrong with a pipeline and with everything in it.

    Args:
        pipeline: the pipeline.
        given: values of its inputs, already typed; the defaults stand for the others.
        seen: ids of the components that were checked before; the steps of all pipelines of a document share them.
    """
    source, known, seen = pipeline.source, {**default_values(pipeline), **given}, set() if seen is None else seen
    yield from check_ports(source, pipeline.inputs, "inputs")
    yield from check_ports(source, pipeline.outputs, "outputs")
    yield from check_inputs(source, pipeline.inputs)
    for name, declared in pipeline.inputs.items():
        value = known.get(name)
        if isinstance(value, Data) and declared.is_data:
            yield from check_local(source, f"inputs.{name}", value, declared.type)
    for step in pipeline.steps.values():
        yield from _check_name(source, step.name)
        yield from StepCheck(pipeline, step, known).problems()
        if step.has_component:
            yield from _check_component(step, known, seen)
    yield from _check_outputs(pipeline)
    cycle = find_cycle(pipeline)
    if cycle is not None:
        message = f"the steps wait for each other: {' -> '.join(cycle)}."
        yield source.problem(f"jobs.{cycle[0]}", message, "Cut one of the bindings.")


def _check_name(source: Source, name: str) -> Iterator[Problem]:
    rule = "lower-case letters, digits and underscores, no digit first"
    meant = name.replace("-", "_")
    if not schema.STEP_NAME.fullmatch(meant):
        yield source.problem(f"jobs.{name}", f"'{name}' is no step's name: {rule}.")
    elif meant != name:
        message = f"'{name}' runs here, and current versions of Azure ML refuse it as a step's name: {rule}."
        yield source.problem(f"jobs.{name}", message, f"Write {meant}.", severity="warning")


def _check_component(step: Step, known: Values, seen: set[int]) -> Iterator[Problem]:
    component = step.component
    if isinstance(component, Pipeline):
        yield from component.source.problems
        yield from check_pipeline(component, given_values(step, known), seen)
    elif id(component) not in seen:
        seen.add(id(component))
        yield from component.source.problems
        yield from check_command(component)


def _check_outputs(pipeline: Pipeline) -> Iterator[Problem]:
    source = pipeline.source
    fed: dict[str, str] = {}
    for step in pipeline.steps.values():
        for port, value in step.outputs.items():
            reference = single_reference(value.path if isinstance(value, Output) else value)
            if reference is None or reference.scope != "parent.outputs":
                continue
            maker = f"{step.name}.{port}"
            if reference.name in fed:
                message = f"the output '{reference.name}' is written by {fed[reference.name]} and by {maker}."
                yield source.problem(f"jobs.{step.name}.outputs.{port}", message)
            fed.setdefault(reference.name, maker)
    for name in pipeline.outputs:
        if name not in fed:
            hint = f"Write ${{{{parent.outputs.{name}}}}} at a step's output."
            yield source.problem(f"outputs.{name}", "no step writes this output.", hint, severity="warning")

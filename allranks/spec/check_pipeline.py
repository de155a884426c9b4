"""Checks of a pipeline as a whole: its own inputs and outputs, its steps' names and components, cycles."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.check_command import check_command, check_inputs, check_ports
from allranks.spec.check_step import StepCheck, check_local
from allranks.spec.expressions import single_reference
from allranks.spec.graph import find_cycle
from allranks.spec.model import Component, Data, Output, Pipeline, Step
from allranks.spec.values import Values, default_values, given_values


class PipelineCheck:
    """The check of one pipeline with the values that are known for its inputs.

    Args:
        pipeline: the pipeline.
        given: values of its inputs, already typed; the defaults stand for the others.
        seen: components that were checked before; they are shared by the steps of all pipelines of a document.
    """

    def __init__(self, pipeline: Pipeline, given: Values, seen: dict[int, Component | Pipeline] | None = None) -> None:
        self._pipeline = pipeline
        self._source = pipeline.source
        self._known = {**default_values(pipeline), **given}
        self._seen = {} if seen is None else seen

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the pipeline and with everything in it."""
        pipeline, source = self._pipeline, self._source
        yield from check_ports(source, pipeline.inputs, "inputs")
        yield from check_ports(source, pipeline.outputs, "outputs")
        yield from check_inputs(source, pipeline.inputs)
        for name, declared in pipeline.inputs.items():
            value = self._known.get(name)
            if isinstance(value, Data) and declared.is_data:
                yield from check_local(source, f"inputs.{name}", value, declared.type)
        for step in pipeline.steps.values():
            yield from self._check_name(step)
            yield from StepCheck(pipeline, step, self._known).problems()
            if step.has_component:
                yield from self._check_component(step)
        yield from self._check_outputs()
        cycle = find_cycle(pipeline)
        if cycle is not None:
            message = f"the steps wait for each other: {' -> '.join(cycle)}."
            yield source.problem(f"jobs.{cycle[0]}", message, "Cut one of the bindings.")

    def _check_name(self, step: Step) -> Iterator[Problem]:
        name = step.name
        if schema.STEP_NAME.fullmatch(name):
            return
        rule = "lower-case letters, digits and underscores, no digit first"
        where = f"jobs.{name}"
        if schema.STEP_NAME.fullmatch(name.replace("-", "_")):
            message = f"'{name}' runs here, and current versions of Azure ML refuse it as a step's name: {rule}."
            yield self._source.problem(where, message, f"Write {name.replace('-', '_')}.", severity="warning")
        else:
            yield self._source.problem(where, f"'{name}' is no step's name: {rule}.")

    def _check_component(self, step: Step) -> Iterator[Problem]:
        component = step.component
        if isinstance(component, Pipeline):
            yield from component.source.problems
            yield from PipelineCheck(component, given_values(step, self._known), self._seen).problems()
        elif id(component) not in self._seen:
            self._seen[id(component)] = component
            yield from component.source.problems
            yield from check_command(component)

    def _check_outputs(self) -> Iterator[Problem]:
        fed: dict[str, str] = {}
        for step in self._pipeline.steps.values():
            for port, value in step.outputs.items():
                reference = single_reference(value.path if isinstance(value, Output) else value)
                if reference is None or reference.scope != "parent.outputs":
                    continue
                maker = f"{step.name}.{port}"
                if reference.name in fed:
                    message = f"the output '{reference.name}' is written by {fed[reference.name]} and by {maker}."
                    yield self._source.problem(f"jobs.{step.name}.outputs.{port}", message)
                fed.setdefault(reference.name, maker)
        for name in self._pipeline.outputs:
            if name not in fed:
                hint = f"Write ${{{{parent.outputs.{name}}}}} at a step's output."
                yield self._source.problem(f"outputs.{name}", "no step writes this output.", hint, severity="warning")

"""The strict check: what Azure ML's own validation does not see before a job has cost money.

``check_document`` takes any component or pipeline; the rules for one command stand in ``check_command.py`` and those
for one step of a pipeline in ``check_step.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.check_command import check_command, check_component_name, check_inputs, check_ports
from allranks.spec.check_step import StepCheck, check_local
from allranks.spec.expressions import single_reference
from allranks.spec.graph import find_cycle
from allranks.spec.model import Component, Data, Literal, Output, Pipeline, Source, Step
from allranks.spec.section import a_or_an
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import Values, check_command_values, check_value, default_values, given_values


def check_document(document: Component | Pipeline, values: Values | None = None) -> list[Problem]:
    """Find everything that is wrong with a document that has been read.

    Args:
        document: a component or a pipeline.
        values: values for the document's inputs, as from NAME=VALUE; with None the document is checked by itself, and
            inputs without a value are no problem.

    Returns:
        Errors and warnings (``Problem.severity``), each once; empty when all is well.
    """
    problems = list(document.source.problems)
    given, wrong = _given(document, values or {})
    problems += wrong
    if isinstance(document, Pipeline):
        problems += check_component_name(document) if document.kind == schema.COMPONENT else ()
        problems += _check_pipeline(document, given, set())
    else:
        problems += [*check_component_name(document), *check_command(document), *check_command_values(document, given)]
    if values is not None:
        problems += _missing(document, given)
    return list(dict.fromkeys(problems))


def _given(document: Component | Pipeline, values: Values) -> tuple[dict[str, Literal | Data], list[Problem]]:
    """Type the values; return the good ones and the problems of the others."""
    given: dict[str, Literal | Data] = {}
    wrong = []
    for name, value in values.items():
        if name not in document.inputs:
            kind = "pipeline" if isinstance(document, Pipeline) else "component"
            hint = did_you_mean(name, document.inputs, "inputs")
            wrong.append(Problem(f"the {kind} has no input '{name}'.", f"inputs.{name}", hint=hint))
            continue
        typed = check_value(document.inputs[name], value, f"inputs.{name}")
        if isinstance(typed, Problem):
            wrong.append(typed)
        else:
            given[name] = typed
    return given, wrong


def _missing(document: Component | Pipeline, given: Values) -> Iterator[Problem]:
    for name, declared in document.inputs.items():
        if declared.required and name not in given:
            message = f"needs {a_or_an(declared.type)}, and has none."
            yield document.source.problem(f"inputs.{name}", message, f"Add {name}=VALUE.")


def _check_pipeline(pipeline: Pipeline, given: Values, seen: set[int]) -> Iterator[Problem]:
    """Yield what is wrong with a pipeline and all in it; ``seen`` has the ids of the components checked before."""
    source, known = pipeline.source, {**default_values(pipeline), **given}
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
        yield from _check_pipeline(component, given_values(step, known), seen)
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

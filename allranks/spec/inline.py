"""Types that YAML leaves to the reader: the ports of commands written on a step, and a job's bare values.

Azure ML does the same when it makes a component of an inline command (``_component_translatable`` of azure-ai-ml).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.errors import Problem
from allranks.spec.expressions import Reference, single_reference
from allranks.spec.model import Data, Input, Literal, Output, Pipeline, Step
from allranks.spec.ports import literal_type
from allranks.spec.values import check_value


def infer_port_types(pipeline: Pipeline, bare: Iterable[str]) -> Pipeline:
    """Give inline commands their ports, and the job's ``bare`` literal inputs the type of the ports that they feed."""
    steps = {name: _with_outputs(step, pipeline) if step.is_inline else step for name, step in pipeline.steps.items()}
    inputs = {**pipeline.inputs, **_typed_by_use(pipeline, steps.values(), frozenset(bare))}
    pipeline = replace(pipeline, inputs=MappingProxyType(inputs), steps=MappingProxyType(steps))
    steps = {name: _with_inputs(step, pipeline) if step.is_inline else step for name, step in steps.items()}
    return replace(pipeline, steps=MappingProxyType(steps))


def _with_outputs(step: Step, pipeline: Pipeline) -> Step:
    outputs = {}
    for name, value in step.outputs.items():
        fed = single_reference(value)
        settings = value if isinstance(value, Output) else pipeline.outputs.get(fed.name if fed else "")
        outputs[name] = Output(name, (settings.type if settings else None) or "uri_folder")
    return replace(step, component=replace(step.component, outputs=MappingProxyType(outputs)))


def _with_inputs(step: Step, pipeline: Pipeline) -> Step:
    inputs = {name: Input(name, _type(value, pipeline)) for name, value in step.inputs.items()}
    return replace(step, component=replace(step.component, inputs=MappingProxyType(inputs)))


def _type(value: Literal | Data, pipeline: Pipeline) -> str:
    reference = single_reference(value.path if isinstance(value, Data) else value)
    bound = "" if reference is None else _type_of_bound(reference, pipeline)
    if isinstance(value, Data):
        return value.type or bound or "uri_folder"
    return bound or literal_type(value)


def _type_of_bound(reference: Reference, pipeline: Pipeline) -> str:
    if reference.scope == "parent.inputs" and reference.name in pipeline.inputs:
        return pipeline.inputs[reference.name].type
    if reference.scope == "parent.jobs":
        return output_type(pipeline, reference) or "uri_folder"
    return ""


def output_type(pipeline: Pipeline, reference: Reference) -> str | None:
    """Return the type of a step's output: what the step says of it, else its component; None when unknown."""
    step = pipeline.steps.get(reference.step)
    if step is None:
        return None
    own = step.outputs.get(reference.name)
    if isinstance(own, Output) and own.type:
        return own.type
    declared = step.component.outputs.get(reference.name)
    return declared.type if declared else None


def _typed_by_use(pipeline: Pipeline, steps: Iterable[Step], bare: frozenset[str]) -> Mapping[str, Input]:
    """Give a job's bare values the type of their ports: ``rate: 1`` for a number port is a number, so 0.5 is one too.

    An empty text for ports that are all optional is no value: the SDK leaves it out of what it sends. A value that the
    ports do not take keeps its own type: what is wrong is said once, at each step that is bound to it.
    """
    found = {}
    for name, ports in _uses(steps).items():
        declared = pipeline.inputs.get(name)
        if name not in bare or declared is None:
            continue
        if declared.default == "" and all(port.optional for port in ports):
            found[name] = replace(declared, type=_common_type(ports) or "string", default=None, optional=True)
        elif not any(port.is_data for port in ports):
            typed = replace(declared, type=_common_type(ports) or declared.type)
            if declared.default is None or not isinstance(check_value(typed, declared.default), Problem):
                found[name] = typed
    return found


def _uses(steps: Iterable[Step]) -> dict[str, list[Input]]:
    """Return for each of the pipeline's inputs the declared ports that are bound to it."""
    uses: dict[str, list[Input]] = {}
    for step in steps:
        for name, value in step.inputs.items():
            reference = single_reference(value)
            port = step.component.inputs.get(name)
            if reference is not None and reference.scope == "parent.inputs" and port is not None:
                uses.setdefault(reference.name, []).append(port)
    return uses


def _common_type(ports: Iterable[Input]) -> str | None:
    """Return the type whose values all ports take, or None when there is none or several."""
    types = {port.type for port in ports} - {"string"}
    if types == {"integer", "number"}:
        return "integer"
    return (types or {"string"}).pop() if len(types) <= 1 else None

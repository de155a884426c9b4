"""From a checked pipeline to a plan: nested pipelines laid flat, every binding followed to its value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from allranks.errors import Problem, SpecError
from allranks.local.assets import Stands, how_to_map
from allranks.local.launch import LAUNCHERS
from allranks.local.machine import gpu_shortage
from allranks.local.plan import Plan, PlannedStep, StepOutput
from allranks.local.settings import PROCESSES_INPUT, all_steps
from allranks.local.sweep.search import Search, plan_search
from allranks.spec import (
    Component,
    Data,
    Distribution,
    Input,
    Output,
    Pipeline,
    Reference,
    Source,
    Step,
    Sweep,
    literal_text,
    references,
    single,
    substitute,
)
from allranks.spec.limits import MOST_RANKS
from allranks.spec.model import Literal

Resolved: TypeAlias = Literal | Path | StepOutput | None
"""What a binding comes to; None for an optional input without a value."""


@dataclass(frozen=True, slots=True)
class _Findings:
    """What is wrong, what a user should know all the same, and what stands for the cloud."""

    stands: Stands
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What ``parent`` means to the steps of one pipeline.

    Attributes:
        prefix: the dotted name of the pipeline's own step and a dot; empty for the outermost.
        inputs: the pipeline's inputs, resolved.
    """

    pipeline: Pipeline
    prefix: str
    inputs: Mapping[str, Resolved]


def make_plan(pipeline: Pipeline, stands: Stands | None = None) -> Plan:
    """Resolve a pipeline that ``spec.check`` found no error in.

    Args:
        pipeline: with the user's values and scale applied.
        stands: what stands for data in the cloud.

    Raises:
        SpecError: data that is not on this machine, or a resolved count that cannot be.
        CannotRunHereError: a step that only a cloud can run.
    """
    findings = _Findings(stands or Stands())
    inputs = {name: _own_input(pipeline, declared, findings) for name, declared in pipeline.inputs.items()}
    scope = _Scope(pipeline, "", inputs)
    steps = {step.name: step for step in _flatten(scope, findings)}
    if findings.problems:
        raise SpecError(findings.problems)
    order = TopologicalSorter({name: step.after for name, step in steps.items()}).static_order()
    outputs = {name: _producer(scope, name) for name in pipeline.outputs}
    return Plan(
        name=pipeline.experiment_name or pipeline.name or pipeline.display_name or "pipeline",
        steps=MappingProxyType({name: steps[name] for name in order}),
        outputs=MappingProxyType({name: output for name, output in outputs.items() if output is not None}),
        continue_on_failure=pipeline.settings.continue_on_step_failure is not False,
        force_rerun=pipeline.settings.force_rerun is True,
        notes=(*findings.notes, *_on_cpu(steps), *_without_effect(pipeline)),
    )


def _on_cpu(steps: Mapping[str, PlannedStep]) -> list[str]:
    """One line for each step whose ranks are too many for the GPUs of this machine."""
    found = {name: gpu_shortage(step.nodes, step.processes) for name, step in steps.items() if step.distribution}
    fewer = "Fewer: --scale {0}=1x1. None: CUDA_VISIBLE_DEVICES=-1."
    return [f"{name}: {text} {fewer.format(name)}" for name, text in found.items() if text]


def _without_effect(pipeline: Pipeline) -> list[str]:
    """One line that names the settings of steps that mean nothing on one machine."""
    named: dict[str, list[str]] = {}
    default = pipeline.settings.default_compute
    if default is not None and default.removeprefix("azureml:") != "serverless":  # that names no cluster either
        named["compute"] = ["the pipeline"]
    for name, step in all_steps(pipeline):
        resources = [step.resources]
        if isinstance(step.component, Component) and step.component.source.file == pipeline.source.file:
            resources.append(step.component.resources)  # a command that stands in the pipeline itself
        settings = {
            "compute": step.compute,
            "instance_type": next((each.instance_type for each in resources if each.instance_type), None),
            "shm_size": next((each.shm_size for each in resources if each.shm_size), None),
        }
        for setting, value in settings.items():
            if value is not None:
                named.setdefault(setting, []).append(name)
    if not named:
        return []
    return [
        "without effect on this machine: " + "; ".join(f"{key} of {', '.join(names)}" for key, names in named.items())
    ]


def _own_input(pipeline: Pipeline, declared: Input, findings: _Findings) -> Resolved:
    """The value of an input of the outermost pipeline: what the user or the YAML gave, or the default."""
    value = declared.default
    if isinstance(value, Data):
        return _path(value.path, pipeline.source, f"inputs.{declared.name}", findings)
    return value


def _path(text: str, source: Source, where: str, findings: _Findings) -> Path | None:
    """A data path as a path on this machine; addresses in the cloud are no such thing."""
    line = source.lines.get(where)
    if ("://" in text and not text.startswith("file://")) or text.startswith("azureml:"):
        stand = findings.stands.find(text)
        if stand is None:
            findings.problems.append(
                Problem(f"{text!r} lies in the cloud.", where, source.file, line, how_to_map(text))
            )
        return stand
    path = Path(text.removeprefix("file://")).expanduser()
    path = path if path.is_absolute() else source.base / path
    if not path.exists():
        findings.problems.append(
            Problem(f"{str(path)!r} does not exist.", where, source.file, line, "Give a file or folder that does.")
        )
        return None
    return path.resolve()


def _flatten(scope: _Scope, findings: _Findings) -> list[PlannedStep]:
    found = []
    for step in scope.pipeline.steps.values():
        where = f"jobs.{step.name}"
        inputs = {}
        searched = step.sweep.space if step.sweep else {}
        for name, declared in step.component.inputs.items():
            if name in searched:
                continue
            value: Literal | Data | None = step.inputs.get(name)
            if value is None:
                value = declared.default
            inputs[name] = _resolve(value, declared, scope, f"{where}.inputs.{name}", findings)
        if isinstance(step.component, Pipeline):
            inner = _Scope(step.component, f"{scope.prefix}{step.name}.", MappingProxyType(inputs))
            found += _flatten(inner, findings)
        else:
            found.append(_plan_step(step, step.component, scope, inputs, findings))
    return found


def _resolve(value: Literal | Data | None, declared: Input, scope: _Scope, where: str, findings: _Findings) -> Resolved:
    if isinstance(value, Data):
        reference = single(value.path)
        if reference is None:
            return _path(value.path, scope.pipeline.source, where, findings)
        return _follow(reference, scope)
    if isinstance(value, str):
        reference = single(value)
        if reference is not None:
            return _follow(reference, scope)
        if references(value):
            return substitute(value, lambda reference: _text(_follow(reference, scope)))
        if declared.is_data:
            return _path(value, scope.pipeline.source, where, findings)
    return value


def _follow(reference: Reference, scope: _Scope) -> Resolved:
    """What a binding comes to in the scope of its pipeline; the check has seen that it exists."""
    if reference.scope == "search_space":
        return str(reference)  # each trial has a value of its own
    if reference.scope == "parent.inputs":
        name = reference.name
        return scope.inputs[name if name in scope.inputs else name.removesuffix(".path")]
    return _step_output(scope, reference.step, reference.name)


def _step_output(scope: _Scope, step_name: str, port: str) -> StepOutput | None:
    """The command step that writes an output of a step, however deeply it is nested."""
    step = scope.pipeline.steps[step_name]
    if isinstance(step.component, Pipeline):
        return _producer(_Scope(step.component, f"{scope.prefix}{step_name}.", {}), port)
    return StepOutput(scope.prefix + step_name, port)


def _producer(scope: _Scope, output: str) -> StepOutput | None:
    """The step output that a pipeline's output is bound to."""
    for step in scope.pipeline.steps.values():
        for port, setting in step.outputs.items():
            text = setting if isinstance(setting, str) else setting.path
            reference = single(text) if text else None
            if reference is not None and reference.scope == "parent.outputs" and reference.name == output:
                return _step_output(scope, step.name, port)
    return None


def _text(value: Resolved) -> str:
    return "" if value is None else str(value) if isinstance(value, Path | StepOutput) else literal_text(value)


def _plan_step(
    step: Step, component: Component, scope: _Scope, inputs: Mapping[str, Resolved], findings: _Findings
) -> PlannedStep:
    name = scope.prefix + step.name
    distribution = step.distribution or component.distribution
    kind = None if distribution is None else distribution.type
    if kind not in LAUNCHERS:
        can = ", ".join(sorted(filter(None, LAUNCHERS)))
        findings.problems.append(
            _problem(step, scope, f"distribution {kind!r} cannot run here; these can: {can}, or none.")
        )
    nodes = _count(step.resources.nodes or component.resources.nodes, "instance_count", step, scope, findings)
    processes = 1
    if distribution is None and nodes > 1:
        findings.notes.append(f"{name}: instance_count {nodes} without a distribution; one process runs, on one node.")
        nodes = 1
    servers = 0
    if distribution is not None and distribution.type == "tensorflow":
        _check_workers(distribution, nodes, step, scope, findings)
        if distribution.parameter_server_count:
            servers = _count(distribution.parameter_server_count, "parameter_server_count", step, scope, findings)
    elif distribution is not None:
        processes = _count(distribution.processes_per_node, "process_count_per_instance", step, scope, findings)
    if nodes * processes + servers > MOST_RANKS:
        many = f"{nodes:,} x {processes:,} ranks are more than the {MOST_RANKS:,} that can be planned on this machine."
        findings.problems.append(_problem(step, scope, many))
    search = None if step.sweep is None else _search(step, step.sweep, scope, nodes * processes, findings)
    timeout = step.timeout if step.timeout is not None else component.timeout
    variables = {**component.environment_variables, **step.environment_variables}
    # A component that starts its own processes says how many in an input; torchrun is the case in point.
    own = inputs.get(PROCESSES_INPUT)
    return PlannedStep(
        name=name,
        component=component,
        inputs=MappingProxyType(
            {key: _planned(value) for key, value in inputs.items() if value is not None},
        ),
        outputs=MappingProxyType({key: _output(declared, step) for key, declared in component.outputs.items()}),
        distribution=kind,
        nodes=nodes,
        processes=processes * own if isinstance(own, int) and own > 0 else processes,
        launched=processes,
        environment_variables=MappingProxyType({key: _bound(value, scope) for key, value in variables.items()}),
        timeout=None if timeout is None else float(_bound(timeout, scope)),
        parameter_servers=servers,
        search=search,
    )


def _search(step: Step, sweep: Sweep, scope: _Scope, ranks: int, findings: _Findings) -> Search:
    """What a sweep step tries; a choice among mappings or among data is more than its trials can be given here."""
    for name, one in sweep.space.items():
        declared = step.component.inputs.get(name)
        values = one.get("values")
        mapped = isinstance(values, list) and any(isinstance(value, dict) for value in values)
        if mapped or (declared is not None and declared.is_data):
            what = "a choice among mappings" if mapped else f"a search over {declared.type if declared else ''} inputs"
            findings.problems.append(_problem(step, scope, f"cannot run here: {name!r} is {what}."))

    def limit(key: str) -> int | None:
        return _count(sweep.limits[key], key, step, scope, findings) if key in sweep.limits else None

    return plan_search(sweep, ranks, limit)


def _check_workers(distribution: Distribution, nodes: int, step: Step, scope: _Scope, findings: _Findings) -> None:
    """Azure ML starts one worker on each node; a worker_count that says otherwise never starts."""
    if distribution.worker_count is None:
        return
    workers = _count(distribution.worker_count, "worker_count", step, scope, findings)
    if workers != nodes:
        message = (
            f"worker_count {workers} differs from instance_count {nodes}; leave worker_count out, or make them equal."
        )
        findings.problems.append(_problem(step, scope, message))


def _planned(value: Literal | Path | StepOutput) -> str | Path | StepOutput:
    return value if isinstance(value, Path | StepOutput) else literal_text(value)


def _bound(value: object, scope: _Scope) -> str:
    """A setting as text, its bindings to the pipeline's inputs followed."""
    return substitute(str(value), lambda reference: _text(_follow(reference, scope)))


def _count(value: object, key: str, step: Step, scope: _Scope, findings: _Findings) -> int:
    """A number of nodes or processes, at least 1; 1 where the YAML is silent."""
    if value is None:
        return 1
    text = _bound(value, scope)
    if text.isdigit() and int(text) >= 1:
        return int(text)
    findings.problems.append(_problem(step, scope, f"{key} is {text!r}; it is a whole number from 1."))
    return 1


def _problem(step: Step, scope: _Scope, message: str) -> Problem:
    source, where = scope.pipeline.source, f"jobs.{step.name}"
    return Problem(message, f"jobs.{scope.prefix}{step.name}", source.file, source.lines.get(where))


def _output(declared: Output, step: Step) -> Output:
    """A declared output with what the step says of it."""
    setting = step.outputs.get(declared.name)
    if setting is None or isinstance(setting, str):
        return declared
    return replace(
        declared,
        mode=setting.mode or declared.mode,
        path=setting.path,
        asset_name=setting.asset_name or declared.asset_name,
        asset_version=setting.asset_version or declared.asset_version,
    )

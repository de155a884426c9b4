"""From a checked pipeline to a plan: nested pipelines laid flat, each step planned by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import MappingProxyType

from allranks.errors import SpecError
from allranks.local.assets import CloudStandIns
from allranks.local.bindings import PipelineScope, PlanFindings
from allranks.local.kinds import step_kind
from allranks.local.machine import gpu_shortage
from allranks.local.plan import PlannedStep, RunPlan
from allranks.local.settings import all_steps
from allranks.spec import Component, Pipeline


def plan_pipeline(
    pipeline: Pipeline,
    stands: CloudStandIns | None = None,
    *,
    containers: bool = False,
    given: Mapping[str, str] | None = None,
) -> RunPlan:
    """Resolve a pipeline that ``spec.check`` found no error in, with the user's values and scale applied.

    In ``containers`` more of what steps ask for has an effect. ``given`` is what the user gave; see
    ``settings.given_names``.

    Raises:
        SpecError: data that is not on this machine, or a resolved count that cannot be.
        CannotRunHereError: a step that only a cloud can run.
    """
    findings = PlanFindings(stands or CloudStandIns(), given or {})
    outermost = PipelineScope(pipeline, findings)
    inputs = {name: outermost.own_input(declared) for name, declared in pipeline.inputs.items()}
    sources = {name: outermost.own_source(declared) for name, declared in pipeline.inputs.items()}
    scope = PipelineScope(pipeline, findings, inputs=inputs, sources=sources, outputs=pipeline.outputs)
    steps = {step.name: step for step in _flatten(scope)}
    if findings.problems:
        raise SpecError(findings.problems)
    order = TopologicalSorter({name: step.after for name, step in steps.items()}).static_order()
    outputs = {name: scope.producer(name) for name in pipeline.outputs}
    return RunPlan(
        name=pipeline.experiment_name or pipeline.name or pipeline.display_name or "pipeline",
        steps=MappingProxyType({name: steps[name] for name in order}),
        outputs=MappingProxyType({name: output for name, output in outputs.items() if output is not None}),
        continue_on_failure=pipeline.settings.continue_on_step_failure is not False,
        force_rerun=pipeline.settings.force_rerun is True,
        # Azure ML takes the folder's name where there is none (azure-ai-ml's Job: "set to current directory name").
        experiment=pipeline.experiment_name or Path.cwd().name or "Default",
        notes=(*findings.notes, *_on_cpu(steps), *_without_effect(pipeline, containers)),
    )


def _flatten(scope: PipelineScope) -> list[PlannedStep]:
    """The steps of a pipeline and of those that are steps of it."""
    found = []
    for step in scope.pipeline.steps.values():
        if isinstance(step.component, Pipeline):
            found += _flatten(scope.nested(step, step.component))
        else:
            planned = step_kind(step.kind).plan(step, step.component, scope)
            sources = scope.input_sources(step, planned.inputs)
            found.append(replace(planned, chosen_by=scope.deciding(step.name), sources=sources))
    return found


def _on_cpu(steps: Mapping[str, PlannedStep]) -> list[str]:
    """One line for each step whose ranks are too many for the GPUs of this machine."""
    found = {name: gpu_shortage(step.nodes, step.processes) for name, step in steps.items() if step.distribution}
    fewer = "Fewer: --scale {0}=1x1. None: CUDA_VISIBLE_DEVICES=-1."
    return [f"{name}: {text} {fewer.format(name)}" for name, text in found.items() if text]


def _without_effect(pipeline: Pipeline, containers: bool) -> list[str]:  # noqa: FBT001
    """One line that names the settings of steps that mean nothing on one machine."""
    named: dict[str, list[str]] = {}
    default = pipeline.settings.default_compute
    if default is not None and default.removeprefix("azureml:") != "serverless":  # that names no cluster either
        named["compute"] = ["the pipeline"]
    for name, step in all_steps(pipeline):
        given = [step.resources]
        if isinstance(step.component, Component) and step.component.source.file == pipeline.source.file:
            given.append(step.component.resources)  # a command that stands in the pipeline itself
        if step.compute is not None:
            named.setdefault("compute", []).append(name)
        for setting in ("instance_type",) if containers else ("instance_type", "shm_size"):
            if any(getattr(resources, setting) for resources in given):
                named.setdefault(setting, []).append(name)
    listed = "; ".join(f"{key} of {', '.join(names)}" for key, names in named.items())
    return [f"without effect on this machine: {listed}"] if named else []

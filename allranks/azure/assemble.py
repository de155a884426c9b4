"""From a target to the job that is sent: read, given its values and scale, and checked, all before Azure is asked.

The same pipeline stands twice in the result: as the SDK's own job, which loses nothing of what the user wrote, and as
``spec``, which the strict check reads. Values and scale are applied to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from allranks import catalogue
from allranks.azure.composing import scale as scale_step
from allranks.azure.explain import service_errors
from allranks.azure.job_changes import find_node, set_destination, set_input, set_placement
from allranks.azure.job_source import read_source, sdk_imported
from allranks.azure.placement import Placement, place_steps
from allranks.errors import Problem, SpecError
from allranks.local.heavy import heavy_snapshots
from allranks.local.settings import all_steps, apply_scale, apply_values, change_step, named_scale
from allranks.spec import Component, Data, Input, Pipeline, check_document, check_machines
from allranks.spec.check_machines import own_resources
from allranks.spec.reader import FileResolver
from allranks.spec.step_sizes import SERVERLESS, check_sizes, step_sizes


@dataclass(frozen=True, slots=True)
class AssembledJob:
    """A pipeline that is ready to be sent: the SDK's PipelineJob, the same as the check has read it, its warnings.

    ``is_named``: the user has given the job its name, under which there may be one already.
    """

    job: Any
    pipeline: Pipeline
    notes: tuple[Problem, ...]
    is_named: bool = False

    @property
    def title(self) -> str:
        """What to call it: the pipeline's name, or that of its file."""
        pipeline, file = self.pipeline, self.pipeline.source.file
        return pipeline.name or (file.stem if file else "") or pipeline.display_name or "pipeline"


def assemble_job(
    target: Any,
    values: Mapping[str, str],
    scale: Mapping[str, tuple[int, int]],
    *,
    compute: str | None = None,
    experiment: str | None = None,
    asked: Placement | None = None,
    resolve: FileResolver = catalogue.resolve,
) -> AssembledJob:
    """Read a target, apply what was asked for, check it, and build the job.

    The target is a name of the library, a YAML file, ``FILE.py:FUNCTION``, or a pipeline job of the SDK. Values are
    texts by ``epochs``, ``group.name`` or ``step.input``; ``scale`` is step to nodes and processes per node;
    ``compute`` is the cluster of all steps that name none. ``resolve`` gives the YAML of a component that a pipeline
    names by its id.

    Raises:
        SpecError: with everything that is wrong.
        AllranksError: the target, a name among values or scale, or a count is wrong.
    """
    with sdk_imported(), service_errors(f"reading {target if isinstance(target, str) else 'the pipeline'}", "SDK"):
        source = read_source(target, resolve)
        pipeline, problems = apply_values(source.pipeline, values)
        scale = named_scale(pipeline, scale)
        for name in scale:
            pipeline = change_step(pipeline, name, lambda step: replace(step, resources=own_resources(step)))
        pipeline = apply_scale(pipeline, scale)
        place = (compute or pipeline.settings.default_compute or source.compute or "").removeprefix("azureml:")
        pipeline = replace(pipeline, settings=replace(pipeline.settings, default_compute=place or None))
        asked = asked or Placement()
        pipeline, placed = place_steps(pipeline, asked)
        problems += check_document(pipeline, values={})
        problems += _without_compute(pipeline)
        machines = [*check_machines(pipeline), *check_sizes(pipeline, step_sizes(pipeline))]
        errors = [problem for problem in (*problems, *machines) if problem.severity == "error"]
        if errors:
            raise SpecError(list(dict.fromkeys(errors)))
        components = [step.component for _, step in all_steps(pipeline)]
        problems += heavy_snapshots(one for one in components if isinstance(one, Component))
        job = source.build({name: _plain(pipeline.inputs[name]) for name in values if name in pipeline.inputs})
        for name in values:
            set_input(job, pipeline, name, only_step=source.step)
        for name, (nodes, processes) in scale.items():
            scale_step(find_node(job, name), nodes=nodes, processes_per_node=processes)
        set_placement(job, asked, placed)
        set_destination(job, pipeline, experiment)
    return AssembledJob(job, pipeline, tuple(problems), is_named=bool(job.name))


def _without_compute(pipeline: Pipeline) -> list[Problem]:
    """An error for every step that would run nowhere."""
    if pipeline.settings.default_compute:
        return []
    hint = f"Give --compute NAME: a cluster of the workspace, or {SERVERLESS}."
    return [
        pipeline.source.problem(f"jobs.{name}", "has no compute, and the pipeline has no default one.", hint)
        for name, step in all_steps(pipeline)
        if isinstance(step.component, Component) and not step.compute and step.branch is None
    ]


def _plain(declared: Input) -> Any:
    """An input's value for a pipeline function: a path as text, which the reader makes data of."""
    return declared.default.path if isinstance(declared.default, Data) else declared.default

"""From a target to the job that is sent: read, given its values and scale, and checked, all before Azure is asked.

The same pipeline stands twice in the result: as the SDK's own job, which loses nothing of what the user wrote, and as
``spec``, which the strict check reads. Values and scale are applied to both.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allranks import catalogue
from allranks.azure.client import INSTALL, quiet
from allranks.azure.composing import scale as scale_step
from allranks.azure.composing import sdk_identity
from allranks.azure.explain import service_errors
from allranks.azure.placement import Placement, place_steps
from allranks.azure.python_target import is_python_target, split
from allranks.azure.sdk import component_of_node, job_of_component
from allranks.errors import CannotRunHereError, Problem, SpecError, UsageError
from allranks.local.heavy import heavy_snapshots
from allranks.local.settings import all_steps, apply_scale, apply_values, change_step
from allranks.spec import Component, Data, Input, Pipeline, check, check_machines, pipeline_from, read
from allranks.spec.check_machines import own_resources
from allranks.spec.document import read_document
from allranks.spec.model import LITERAL_TYPES, Literal, Source
from allranks.spec.step_sizes import SERVERLESS, check_sizes, step_sizes

Resolve = Callable[[str], Path | None]
_Build = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A pipeline that is ready to be sent.

    Attributes:
        job: the SDK's PipelineJob.
        pipeline: the same, as the check has read it.
        notes: warnings of the check.
    """

    job: Any
    pipeline: Pipeline
    notes: tuple[Problem, ...]

    @property
    def title(self) -> str:
        """What to call it: the pipeline's name, or that of its file."""
        pipeline, file = self.pipeline, self.pipeline.source.file
        return pipeline.name or (file.stem if file else "") or pipeline.display_name or "pipeline"


@dataclass(frozen=True, slots=True)
class _Target:
    """A target as read.

    Attributes:
        build: makes the SDK's job, from values for a pipeline function.
        compute: where it runs unless somebody says otherwise: only a job can name a default of its own.
        step: the one step, if the target is a component.
    """

    pipeline: Pipeline
    build: _Build
    compute: str | None = None
    step: str = ""


def assemble(
    target: Any,
    values: Mapping[str, str],
    scale: Mapping[str, tuple[int, int]],
    *,
    compute: str | None = None,
    experiment: str | None = None,
    asked: Placement | None = None,
    resolve: Resolve = catalogue.resolve,
) -> Assembled:
    """Read a target, apply what was asked for, check it, and build the job.

    Args:
        target: a name of the library, a YAML file, ``FILE.py:FUNCTION``, or a pipeline job of the SDK.
        values: ``epochs``, ``group.name``, ``step.input`` to the value as text.
        scale: step to nodes and processes per node.
        compute: the cluster of all steps that name none of their own.
        experiment: in place of the pipeline's own.
        asked: sizes, identities and timeouts of steps.
        resolve: gives the YAML of a component that a pipeline names by its id.

    Raises:
        SpecError: with everything that is wrong.
        AllranksError: the target, a name among values or scale, or a count is wrong.
    """
    with _imported_sdk(), service_errors(f"reading {target if isinstance(target, str) else 'the pipeline'}", "SDK"):
        read_target = _read(target, resolve)
        pipeline, problems = apply_values(read_target.pipeline, values)
        for name in scale:
            pipeline = change_step(pipeline, name, lambda step: replace(step, resources=own_resources(step)))
        pipeline = apply_scale(pipeline, scale)
        place = (compute or pipeline.settings.default_compute or read_target.compute or "").removeprefix("azureml:")
        pipeline = replace(pipeline, settings=replace(pipeline.settings, default_compute=place or None))
        asked = asked or Placement()
        pipeline, placed = place_steps(pipeline, asked)
        problems += check(pipeline, values={})
        problems += _without_compute(pipeline)
        machines = [*check_machines(pipeline), *check_sizes(pipeline, step_sizes(pipeline))]
        problems += [problem for problem in machines if problem.severity == "error"]
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise SpecError(list(dict.fromkeys(errors)))
        components = [step.component for _, step in all_steps(pipeline)]
        problems += heavy_snapshots(one for one in components if isinstance(one, Component))
        job = read_target.build({name: _plain(pipeline.inputs[name]) for name in values if name in pipeline.inputs})
        for name in values:
            _set_value(job, read_target, pipeline, name)
        for name, (nodes, processes) in scale.items():
            scale_step(_node(job, name), nodes=nodes, processes_per_node=processes)
        _place(job, asked, placed)
        _set_place(job, pipeline, experiment)
    return Assembled(job, pipeline, tuple(problems))


@contextlib.contextmanager
def _imported_sdk() -> Iterator[None]:
    """The SDK, silent; what the user's module prints goes to standard error."""
    try:
        with quiet():
            import azure.ai.ml  # noqa: F401
    except ImportError as error:
        raise CannotRunHereError(f"Azure needs the Azure ML SDK, azure-ai-ml ({error}).", INSTALL) from None
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        yield


def _read(target: Any, resolve: Resolve) -> _Target:
    if not isinstance(target, str):
        return _Target(pipeline_of(target, resolve), lambda _values: target)
    if is_python_target(target):
        from allranks.azure.document import job_document
        from allranks.azure.reader import builder_of

        file, function = split(target)
        build = builder_of(file, function)
        source = Source(file=None, base=file.resolve().parent)
        return _Target(pipeline_from(job_document(build({})), source, resolve), build)
    from azure.ai.ml import load_job

    from allranks.cli.target import find_file, of_component

    file = find_file(target)
    document = read(file, resolve=resolve)
    _require_pipeline_or_component(file)
    if isinstance(document, Component):
        return _Target(of_component(document), lambda _values: _job_of(file, document.name), SERVERLESS, document.name)
    if _is_component(file):
        return _Target(document, lambda values: _job_of_pipeline(file, document, values), SERVERLESS)
    return _Target(document, lambda _values: load_job(file))


def pipeline_of(job: Any, resolve: Resolve) -> Pipeline:
    """What a pipeline job of the SDK says.

    Raises:
        UsageError: it is no pipeline job.
        SpecError: it is not valid.
    """
    with _imported_sdk():
        from azure.ai.ml.entities import PipelineJob

        from allranks.azure.document import job_document

        if not isinstance(job, PipelineJob):
            message = f"a {type(job).__name__} is no pipeline job."
            raise UsageError(message, "Give what your @pipeline function returns, or the text of a target.")
        if any(str(component_of_node(node)).startswith("/subscriptions/") for node in job.jobs.values()):
            raise UsageError("this pipeline job has been sent before.", "Call its function again, for another job.")
        return pipeline_from(job_document(job), Source(file=None, base=Path.cwd()), resolve)


def _require_pipeline_or_component(file: Path) -> None:
    """Refuse a command job or a sweep job by itself: the SDK makes no pipeline of it."""
    document, _ = read_document(file)
    if document.get("type") == "sweep" or "commandjob" in str(document.get("$schema")).lower():
        message = f"{file} is a job by itself, and `allranks submit` sends pipelines and components."
        raise UsageError(message, f"Send it with: az ml job create --file {file}.")


def _is_component(file: Path) -> bool:
    """Whether a pipeline's YAML is that of a component: the SDK wants to be told."""
    document, _ = read_document(file)
    declares = any(
        isinstance(one, dict) and (one.get("type") in LITERAL_TYPES or one.keys() & {"default", "optional"})
        for one in (document.get("inputs") or {}).values()
    )
    return declares or "pipelineComponent" in str(document.get("$schema"))


def _job_of_pipeline(file: Path, pipeline: Pipeline, values: Mapping[str, Any]) -> Any:
    """A job of a pipeline component; an input can be set afterwards only if it has a value now."""
    from azure.ai.ml import load_component

    component = load_component(file)
    given = {
        name: _sdk_value(Data(value) if pipeline.inputs[name].is_data else value, pipeline.inputs[name].type)
        for name, value in values.items()
    }
    job = job_of_component(component(**given))
    job.display_name = component.display_name
    return job


def _job_of(file: Path, name: str) -> Any:
    """A pipeline job of one step, called like the component."""
    from azure.ai.ml import load_component
    from azure.ai.ml.dsl import pipeline

    component = load_component(file)

    def build() -> dict[str, Any]:
        step = component()
        step.name = name
        return dict(step.outputs)

    return pipeline(name=name, display_name=component.display_name)(build)()


def _without_compute(pipeline: Pipeline) -> list[Problem]:
    """An error for every step that would run nowhere."""
    if pipeline.settings.default_compute:
        return []
    hint = f"Give --compute NAME: a cluster of the workspace, or {SERVERLESS}."
    return [
        pipeline.source.problem(f"jobs.{name}", "has no compute, and the pipeline has no default one.", hint)
        for name, step in all_steps(pipeline)
        if isinstance(step.component, Component) and not step.compute
    ]


def _plain(declared: Input) -> Any:
    """An input's value for a pipeline function: a path as text, which the reader makes data of."""
    return declared.default.path if isinstance(declared.default, Data) else declared.default


def _set_value(job: Any, target: _Target, pipeline: Pipeline, name: str) -> None:
    """Set in the job what ``apply_values`` has set in the pipeline."""
    if name in pipeline.inputs:
        declared = pipeline.inputs[name]
        value = _sdk_value(declared.default, declared.type)
        if target.step:
            setattr(_node(job, target.step).inputs, name, value)
        else:
            _set_input(job, name, value)
        return
    path, _, port = name.rpartition(".")
    step = dict(all_steps(pipeline))[path]
    setattr(_node(job, path).inputs, port, _sdk_value(step.inputs[port], step.component.inputs[port].type))


def _set_input(job: Any, name: str, value: Any) -> None:
    """Set an input of the pipeline; a group's member is reached through its group."""
    *groups, last = name.split(".")
    inputs = job.inputs
    for group in groups:
        inputs = inputs.get(group, {})
    if last not in inputs:
        hint = "Give it a default in the pipeline function."
        raise UsageError(f"the pipeline's input {name!r} cannot be set from outside.", hint)
    setattr(inputs, last, value)


def _sdk_value(value: Literal | Data | None, type_: str) -> Any:
    if not isinstance(value, Data):
        return value
    from azure.ai.ml import Input as SdkInput

    return SdkInput(type=value.type or type_, path=value.path, mode=value.mode)


def _place(job: Any, asked: Placement, placed: Mapping[str, Mapping[str, Any]]) -> None:
    """Set sizes, identities and timeouts; what all steps get may be set in a nested pipeline that two steps share."""
    named = asked.instance_types.keys() | asked.identities.keys() | asked.timeouts.keys()
    for name, change in placed.items():
        scale_step(_node(job, name, shared=name not in named), **change)
    if "" in asked.identities:
        job.identity = sdk_identity(asked.identities[""])


def _node(job: Any, path: str, *, shared: bool = False) -> Any:
    """The node of a step, a nested one by its dotted name; ``shared`` if the change is meant for every step alike."""
    nodes, found = job.jobs, None
    for name in path.split("."):
        if found is not None:
            if not shared:
                _require_own(found, nodes)
            nodes = found.component.jobs
        found = nodes[name]
    return found


def _require_own(node: Any, siblings: Mapping[str, Any]) -> None:
    """Refuse to change a nested pipeline that two steps share: both would change."""
    sharing = [other.name for other in siblings.values() if other is not node and other.component is node.component]
    if sharing:
        raise UsageError(
            f"step {node.name!r} shares its pipeline with {', '.join(sharing)}: what is in it cannot be set for one.",
            "Give each step a pipeline of its own: call the function, or load_component(), once for each.",
        )


def _set_place(job: Any, pipeline: Pipeline, experiment: str | None) -> None:
    """Set where the job runs and under what experiment it is listed."""
    job.settings.default_compute = pipeline.settings.default_compute or job.settings.default_compute
    job.experiment_name = experiment or job.experiment_name or pipeline.experiment_name or pipeline.name or "pipelines"

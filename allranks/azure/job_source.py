"""What is to be sent, read twice: as the SDK's own job, which loses nothing of what the user wrote, and by our spec."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.azure.client import quiet_sdk, require_sdk
from allranks.azure.job_changes import sdk_value
from allranks.azure.python_target import is_python_target, split_target
from allranks.azure.sdk import component_of_node, job_of_component
from allranks.errors import UsageError
from allranks.local.settings import all_steps
from allranks.spec import Component, Data, Pipeline, pipeline_from, read_spec
from allranks.spec.document import read_yaml
from allranks.spec.model import LITERAL_TYPES, Source
from allranks.spec.reader import FileResolver
from allranks.spec.step_sizes import SERVERLESS

_PREVIEW = "AZURE_ML_CLI_PRIVATE_FEATURES_ENABLED"  # what the SDK asks (is_private_preview_enabled)


@dataclass(frozen=True, slots=True)
class JobSource:
    """A target as it was read; ``build`` makes the SDK's job, from values for a pipeline function.

    The compute is where it runs unless somebody says otherwise: only a job can name a default of its own. ``step`` is
    the one step, if the target is a component.
    """

    pipeline: Pipeline
    build: Callable[[Mapping[str, Any]], Any]
    compute: str | None = None
    step: str = ""


def read_source(target: Any, resolve: FileResolver) -> JobSource:
    """Read a name of the library, a YAML file, ``FILE.py:FUNCTION`` or a job of the SDK; raises AllranksError."""
    if not isinstance(target, str):
        return JobSource(pipeline_of_job(target, resolve), lambda _values: target)
    if is_python_target(target):
        from allranks.azure.document import job_document
        from allranks.azure.reader import job_builder

        file, function = split_target(target)
        build = job_builder(file, function)
        source = Source(file=None, base=file.resolve().parent)
        return JobSource(pipeline_from(job_document(build({})), source, resolve), build)
    from azure.ai.ml import load_job

    from allranks.cli.target import find_yaml, one_step_pipeline

    file = find_yaml(target)
    found = read_spec(file, resolve=resolve)
    written, _ = read_yaml(file)
    # The SDK makes no pipeline of a command job or a sweep job by itself.
    if written.get("type") == "sweep" or "commandjob" in str(written.get("$schema")).lower():
        message = f"{file} is a job by itself, and `allranks submit` sends pipelines and components."
        raise UsageError(message, f"Send it with: az ml job create --file {file}.")
    if isinstance(found, Component):
        name = found.name
        return JobSource(one_step_pipeline(found), lambda _values: _job_of_component(file, name), SERVERLESS, name)
    _require_preview(found)
    if _is_component(written):
        return JobSource(found, lambda values: _job_of_pipeline(file, found, values), SERVERLESS)
    return JobSource(found, lambda _values: load_job(file))


def _require_preview(pipeline: Pipeline) -> None:
    """The SDK knows steps that decide only where its private preview is switched on, and says little otherwise."""
    deciding = [name for name, step in all_steps(pipeline) if step.branch is not None]
    if deciding and os.environ.get(_PREVIEW, "").lower() != "true":
        message = f"step {', '.join(deciding)}: if_else is a private preview of Azure ML, which is not switched on."
        raise UsageError(message, f"Set {_PREVIEW}=true.")


def pipeline_of_job(job: Any, resolve: FileResolver) -> Pipeline:
    """What a pipeline job of the SDK says; raises UsageError for anything else, SpecError for one that is wrong."""
    with sdk_imported():
        from azure.ai.ml.entities import PipelineJob

        from allranks.azure.document import job_document

        if not isinstance(job, PipelineJob):
            message = f"a {type(job).__name__} is no pipeline job."
            raise UsageError(message, "Give what your @pipeline function returns, or the text of a target.")
        if any(str(component_of_node(node)).startswith("/subscriptions/") for node in job.jobs.values()):
            raise UsageError("this pipeline job has been sent before.", "Call its function again, for another job.")
        return pipeline_from(job_document(job), Source(file=None, base=Path.cwd()), resolve)


@contextlib.contextmanager
def sdk_imported() -> Iterator[None]:
    """The SDK, silent; what the user's module prints goes to standard error."""
    require_sdk("Azure")
    with quiet_sdk(), contextlib.redirect_stdout(sys.stderr):
        yield


def _is_component(document: Mapping[str, Any]) -> bool:
    """Whether a pipeline's YAML is that of a component: the SDK wants to be told."""
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
        name: sdk_value(Data(value) if pipeline.inputs[name].is_data else value, pipeline.inputs[name].type)
        for name, value in values.items()
    }
    job = job_of_component(component(**given))
    job.display_name = component.display_name
    return job


def _job_of_component(file: Path, name: str) -> Any:
    """A pipeline job of one step, called like the component."""
    from azure.ai.ml import load_component
    from azure.ai.ml.dsl import pipeline

    component = load_component(file)

    def build() -> dict[str, Any]:
        step = component()
        step.name = name
        return dict(step.outputs)

    return pipeline(name=name, display_name=component.display_name)(build)()

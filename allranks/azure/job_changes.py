"""What was asked for, set in the SDK's job: values, sizes, identities, where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allranks.azure.composing import scale as scale_step
from allranks.azure.composing import sdk_identity
from allranks.azure.placement import Placement
from allranks.errors import UsageError
from allranks.local.settings import all_steps
from allranks.spec import Data, Pipeline
from allranks.spec.model import Literal


def set_input(job: Any, pipeline: Pipeline, name: str, *, only_step: str = "") -> None:
    """Set in the job what ``apply_values`` has set in the pipeline: one of its inputs, or ``step.input``.

    The job of a component has ``only_step``, whose inputs are the pipeline's. Raises UsageError for an input that the
    SDK can set no more.
    """
    if name in pipeline.inputs:
        declared = pipeline.inputs[name]
        value = sdk_value(declared.default, declared.type)
        if only_step:
            setattr(find_node(job, only_step).inputs, name, value)
        else:
            _set_pipeline_input(job, name, value)
        return
    path, _, port = name.rpartition(".")
    step = dict(all_steps(pipeline))[path]
    setattr(find_node(job, path).inputs, port, sdk_value(step.inputs[port], step.component.inputs[port].type))


def _set_pipeline_input(job: Any, name: str, value: Any) -> None:
    """Set an input of the pipeline; a group's member is reached through its group."""
    *groups, last = name.split(".")
    inputs = job.inputs
    for group in groups:
        inputs = inputs.get(group, {})
    if last not in inputs:
        hint = "Give it a default in the pipeline function."
        raise UsageError(f"the pipeline's input {name!r} cannot be set from outside.", hint)
    setattr(inputs, last, value)


def sdk_value(value: Literal | Data | None, type_: str) -> Any:
    """A value as the SDK takes it: data as its ``Input``, all else as it is."""
    if not isinstance(value, Data):
        return value
    from azure.ai.ml import Input as SdkInput

    return SdkInput(type=value.type or type_, path=value.path, mode=value.mode)


def set_placement(job: Any, asked: Placement, placed: Mapping[str, Mapping[str, Any]]) -> None:
    """Set sizes, identities and timeouts; what all steps get may be set in a nested pipeline that two steps share."""
    named = asked.instance_types.keys() | asked.identities.keys() | asked.timeouts.keys()
    for name, change in placed.items():
        scale_step(find_node(job, name, shared=name not in named), **change)
    if "" in asked.identities:
        job.identity = sdk_identity(asked.identities[""])


def find_node(job: Any, path: str, *, shared: bool = False) -> Any:
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


def set_destination(job: Any, pipeline: Pipeline, experiment: str | None) -> None:
    """Set where the job runs and under what experiment it is listed."""
    job.settings.default_compute = pipeline.settings.default_compute or job.settings.default_compute
    job.experiment_name = experiment or job.experiment_name or pipeline.experiment_name or pipeline.name or "pipelines"

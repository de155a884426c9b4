"""What a user's ``@pipeline`` takes from this library: the components by name, and ``scale``."""

from __future__ import annotations

import copy
import re
from difflib import get_close_matches
from typing import Any, TypeVar

from allranks import catalogue
from allranks.errors import CannotRunHereError, UsageError

_SHM_SIZE = re.compile(r"[1-9]\d*[bkmg]", re.IGNORECASE)
_StepT = TypeVar("_StepT")


class Components:
    """The library's components: ``components.train_ddp(data=..., epochs=3)`` is a step of the SDK.

    Every access loads the component anew. The SDK lets all steps of one component object share its resources and
    distribution, so that changing one step would change them all.
    """

    def __getattr__(self, name: str) -> Any:
        path = None if name.startswith("_") else catalogue.components().get(name)
        if path is None:
            near = get_close_matches(name, catalogue.COMPONENTS, n=3) or catalogue.COMPONENTS
            raise AttributeError(f"there is no component {name!r}; there is {', '.join(near)}")
        try:
            from azure.ai.ml import load_component
        except ImportError as error:
            message = f"Components as steps need the Azure ML SDK, azure-ai-ml ({error})."
            raise CannotRunHereError(message, 'Install it with: pip install "allranks[azure]"') from None
        return load_component(path)

    def __dir__(self) -> list[str]:
        return list(catalogue.COMPONENTS)

    def __repr__(self) -> str:
        return f"components({', '.join(catalogue.COMPONENTS)})"


components = Components()
"""The components of the library by name."""


def scale(
    step: _StepT,
    *,
    nodes: Any = None,
    processes_per_node: Any = None,
    instance_type: Any = None,
    shm_size: Any = None,
    timeout: Any = None,
) -> _StepT:
    """Set on how many nodes and ranks a step runs, and on what machines; what is not given stays as it is.

    The right fields are set for each distribution, and on copies: other steps of the same component keep theirs.

    Args:
        step: a command step of the SDK, such as ``components.train_ddp(...)`` inside a ``@pipeline`` function.
        nodes: number of machines, at least 1. For TensorFlow the number of workers follows.
        processes_per_node: ranks on each machine, at least 1: the number of its GPUs. It goes to the component's
            input of the same name if it has one, else to the distribution.
        instance_type: VM size, such as ``Standard_ND96isr_H100_v5``, for serverless compute.
        shm_size: shared memory of the container, such as ``8g``.
        timeout: seconds after which Azure ML ends the step.

    Every value may also be a parameter of the pipeline function, or the text ``${{parent.inputs.NAME}}``.

    Returns:
        The same step.

    Raises:
        UsageError: a value is out of range, or the step's distribution cannot take it.
    """
    from azure.ai.ml.entities import Command, CommandJobLimits, JobResourceConfiguration

    if not isinstance(step, Command):
        raise UsageError(f"scale() takes a command step of a pipeline, not a {type(step).__name__}.")
    resources = copy.deepcopy(step.resources) or JobResourceConfiguration()
    if nodes is not None:
        resources.instance_count = _count(nodes, "nodes")
    if instance_type is not None:
        resources.instance_type = str(instance_type)
    if shm_size is not None:
        resources.shm_size = _shm_size(shm_size)
    step.resources = resources
    _distribute(step, nodes, processes_per_node)
    if timeout is not None:
        step.limits = CommandJobLimits(timeout=_count(timeout, "timeout"))
    return step


def _distribute(step: Any, nodes: Any, processes: Any) -> None:
    """Set what the distribution says about nodes and processes, on a copy of it."""
    if processes is not None and "processes_per_node" in step.component.inputs:
        _count(processes, "processes_per_node")
        step.inputs.processes_per_node = processes
        processes = None
    distribution = copy.deepcopy(step.distribution)
    kind = str(getattr(distribution, "type", "")).lower()
    if kind == "tensorflow" and nodes is not None:
        distribution.worker_count = _count(nodes, "nodes")
    if processes is not None and kind in ("pytorch", "mpi"):
        distribution.process_count_per_instance = _count(processes, "processes_per_node")
    elif processes not in (None, 1):
        what = f"has the distribution {kind}" if kind else "has no distribution"
        raise UsageError(f"{step.component.name} {what}: it runs one process on each node, not {processes}.")
    if distribution is not None:
        step.distribution = distribution


def _count(value: Any, name: str) -> int | str:
    """A whole number from 1 on, or the text of a binding."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise UsageError(f"{name}={value}: it has to be at least 1.")
        return value
    return _binding(value, name, "a whole number, at least 1")


def _shm_size(value: Any) -> str:
    if isinstance(value, str) and _SHM_SIZE.fullmatch(value):
        return value
    return _binding(value, "shm_size", "a number with b, k, m or g, such as 8g")


def _binding(value: Any, name: str, rule: str) -> str:
    """The text of a pipeline parameter: the SDK's own objects do not survive a copy of what they stand in."""
    text = str(value)
    if not (text.startswith("${{") and text.endswith("}}")):
        raise UsageError(f"{name}={value!r}: it has to be {rule}, or a parameter of the pipeline.")
    return text

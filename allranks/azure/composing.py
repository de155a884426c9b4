"""``scale``: where and how one step of a user's pipeline runs."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from allranks.azure.client import quiet_sdk
from allranks.azure.placement import duration_seconds, identity_word
from allranks.azure.sdk import given_inputs
from allranks.errors import UsageError
from allranks.sizes import MachineUse, find_misfits, nccl_variables
from allranks.spec import Distribution
from allranks.spec.distribution import distribution_kind

if TYPE_CHECKING:
    from allranks.azure.sdk import PipelineInput

_Count: TypeAlias = "int | str | PipelineInput"
_Text: TypeAlias = "str | PipelineInput"

_TIERS = ("spot", "basic", "standard", "premium")

_SHM_SIZE = re.compile(r"[1-9]\d*[bkmg]", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PROCESSES_INPUT = "processes_per_node"
_StepT = TypeVar("_StepT")


def scale(
    step: _StepT,
    *,
    nodes: _Count | None = None,
    processes_per_node: _Count | None = None,
    instance_type: _Text | None = None,
    shm_size: _Text | None = None,
    timeout: _Count | None = None,
    environment_variables: Mapping[str, str | int | float | PipelineInput] | None = None,
    tier: str | None = None,
    identity: str | None = None,
) -> _StepT:
    """Set on how many nodes and ranks a step runs, and on what machines; what is not given stays as it is.

    The right fields are set for each distribution, and on copies: other steps of the same component keep theirs.
    Where the size is known (``docs/sizes.md``), more ranks than GPUs are refused, idle GPUs and several nodes
    without InfiniBand are warned of, and the variables that help NCCL on InfiniBand are set unless the step has them.

    Args:
        step: a command step of the SDK, such as ``components.train_ddp(...)`` inside a ``@pipeline`` function, what its
            ``.sweep(...)`` returned, or a parallel step, of which the SDK sends no timeout and no tier.
        nodes: number of machines, at least 1. For TensorFlow the number of workers follows.
        processes_per_node: ranks on each machine, at least 1: the number of its GPUs. It goes to the component's
            input of the same name if it has one, else to the distribution; of a parallel step, the workers on each
            machine, to ``max_concurrency_per_instance``.
        instance_type: VM size, such as ``Standard_ND96isr_H100_v5``, for serverless compute.
        shm_size: shared memory of the container, such as ``8g``.
        timeout: after what time Azure ML ends the step (a sweep as a whole): seconds, or a text such as ``2h``.
        environment_variables: added to those that the step has.
        tier: the queue: ``spot`` (cheap, and may be taken away at any time), ``basic``, ``standard`` or ``premium``.
        identity: as whom the step reaches data: ``managed`` (the compute's), ``user`` (yours) or ``amltoken``.

    Every number and text but ``tier`` and ``identity`` may also be a parameter of the pipeline, or
    ``${{parent.inputs.NAME}}``.

    Returns:
        The same step.

    Raises:
        UsageError: a value is out of range, or the step's distribution or machine cannot take it.
    """
    _check_step(step, timeout, tier, sets_own=bool(environment_variables) or identity is not None)
    _provide(step, nodes, instance_type, shm_size)
    _distribute(step, nodes, processes_per_node)
    if timeout is not None:
        _limit(step, timeout)
    changed: Any = step
    if environment_variables:
        changed.environment_variables = {**(changed.environment_variables or {}), **_variables(environment_variables)}
    if tier is not None:
        _queue(step, tier)
    if identity is not None:
        changed.identity = sdk_identity(identity)
    _fit(step)
    return step


def _check_step(step: Any, timeout: Any, tier: Any, *, sets_own: bool) -> None:
    """Refuse what is no step that can be scaled, and what no field of the SDK's step holds.

    `sets_own` says whether the step is to have variables or an identity of its own.
    """
    from azure.ai.ml.entities import Command, Parallel, Sweep

    if not isinstance(step, (Command, Parallel, Sweep)):
        kinds = "a command, sweep or parallel step"
        raise UsageError(f"scale() takes {kinds} of a pipeline, not a {type(step).__name__}.")
    if isinstance(step, Sweep) and sets_own:
        message = "scale() cannot set environment_variables and identity of a sweep step: the SDK sends none."
        raise UsageError(message, "Variables belong in the trial's component, an identity to the whole job.")
    if isinstance(step, Parallel) and timeout is not None:
        message = "timeout of a parallel step: Azure ML has none for the step as a whole, and the SDK sends none."
        raise UsageError(message, "retry_settings.timeout in its YAML ends one call of run(); cancel the job by hand.")
    if isinstance(step, Parallel) and tier is not None:
        raise UsageError("tier of a parallel step: the SDK sends none.", "Leave tier out.")


def _carrier(step: Any) -> Any:
    """What carries resources and distribution: the step, or a sweep's trial, which is a copy of the component."""
    return step.trial if step.type == "sweep" else step


def _provide(step: Any, nodes: Any, instance_type: Any, shm_size: Any) -> None:
    """Set the step's resources, on a copy of them."""
    from azure.ai.ml.entities import JobResourceConfiguration

    resources = copy.deepcopy(_carrier(step).resources) or JobResourceConfiguration()
    if nodes is not None:
        resources.instance_count = _count(nodes, "nodes")
    if instance_type is not None:
        resources.instance_type = str(instance_type)
    if shm_size is not None:
        resources.shm_size = _shm_size(shm_size)
    _carrier(step).resources = resources


def _distribute(step: Any, nodes: Any, processes: Any) -> None:
    """Set what the distribution says about nodes and processes, on a copy of it; a parallel step has workers."""
    if step.type == "parallel":
        if processes is not None:
            step.max_concurrency_per_instance = _count(processes, _PROCESSES_INPUT)
        return
    component = _component(step)
    if processes is not None and _PROCESSES_INPUT in component.inputs:
        _count(processes, _PROCESSES_INPUT)
        step.inputs.processes_per_node = processes
        processes = None
    distribution = copy.deepcopy(_carrier(step).distribution)
    name, kind = _kind(distribution), distribution_kind(_kind(distribution))
    if not kind.starts_processes and processes not in (None, 1):
        what = f"has the distribution {name}" if name else "has no distribution"
        raise UsageError(f"{component.name} {what}: it runs one process on each node, not {processes}.")
    nodes = None if nodes is None else _count(nodes, "nodes")
    ranks = _count(processes, _PROCESSES_INPUT) if kind.starts_processes and processes is not None else None
    for key, count in kind.scaled(Distribution(name), nodes, ranks).counts.items():
        if count is not None:
            setattr(distribution, key, count)
    if distribution is not None:
        _carrier(step).distribution = distribution


def _limit(step: Any, timeout: Any) -> None:
    from azure.ai.ml.entities import CommandJobLimits

    is_duration = isinstance(timeout, str) and not timeout.startswith("${{")
    try:
        seconds = duration_seconds(timeout) if is_duration else _count(timeout, "timeout")
    except UsageError as error:
        raise UsageError(f"timeout={timeout!r}: {error.message}", error.hint) from None
    if step.type == "sweep":
        step.set_limits(timeout=seconds)
    else:
        step.limits = CommandJobLimits(timeout=seconds)


def sdk_identity(word: str) -> Any:
    """The SDK's object for ``managed``, ``user`` or ``amltoken``; raises UsageError for another word."""
    from azure.ai.ml.entities import AmlTokenConfiguration, ManagedIdentityConfiguration, UserIdentityConfiguration

    kinds = {
        "managed": ManagedIdentityConfiguration,
        "user": UserIdentityConfiguration,
        "amltoken": AmlTokenConfiguration,
    }
    return kinds[identity_word(word)]()


def _queue(step: Any, tier: str) -> None:
    from azure.ai.ml.entities import QueueSettings

    if tier.lower() not in _TIERS:
        raise UsageError(f"tier={tier!r}: it has to be one of {', '.join(_TIERS)}.")
    with quiet_sdk():  # the SDK calls the class experimental, since years
        step.queue_settings = QueueSettings(job_tier=tier.capitalize())


def _component(step: Any) -> Any:
    return step.trial if step.type == "sweep" else step.component


def _fit(step: Any) -> None:
    """Compare the step as it is now with its machines, and set what helps it there.

    The workers of a parallel step share GPUs, or use none.
    """
    if step.type == "parallel":
        return
    carrier, component = _carrier(step), _component(step)
    size = carrier.resources.instance_type
    if not isinstance(size, str):
        return
    nodes = carrier.resources.instance_count or 1
    given: dict[str, str] = {}
    if step.type != "sweep":
        helping = nccl_variables(size) if nodes != 1 else {}
        given = {**helping, **(step.environment_variables or {})}
        step.environment_variables = given or step.environment_variables
    gpu_per_rank = distribution_kind(_kind(carrier.distribution)).starts_processes
    environment = component.environment if isinstance(component.environment, str) else ""
    use = MachineUse(size, _known(nodes), _known(_processes(step)), gpu_per_rank, component.command, given, environment)
    for where, message, hint, severity in find_misfits(use):
        if severity == "error":
            raise UsageError(f"{component.name}: {where}: {message}", hint)
        warnings.warn(f"{component.name}: {where}: {message} {hint}", stacklevel=3)


def _processes(step: Any) -> Any:
    declared = _component(step).inputs
    if _PROCESSES_INPUT not in declared:
        return getattr(_carrier(step).distribution, "process_count_per_instance", None) or 1
    given = given_inputs(step).get(_PROCESSES_INPUT)
    return declared[_PROCESSES_INPUT].default if given is None else given


def _known(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _kind(distribution: Any) -> str:
    return str(getattr(distribution, "type", "")).lower()


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


def _variables(given: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables as texts; the SDK fails on a pipeline parameter, and takes the text of its binding."""
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"environment_variables: {name!r} is no name: letters, digits and underscores.")
        if value is None or isinstance(value, (bool, Mapping, list, tuple)):
            raise UsageError(f"environment_variables: {name}={value!r}: it has to be a text or a number.")
    return {name: str(value) for name, value in given.items()}


def _binding(value: Any, name: str, rule: str) -> str:
    """The text of a pipeline parameter: the SDK's own objects do not survive a copy of what they stand in."""
    text = str(value)
    if not (text.startswith("${{") and text.endswith("}}")):
        raise UsageError(f"{name}={value!r}: it has to be {rule}, or a parameter of the pipeline.")
    return text

"""Where and how single steps of a submission run: ``--instance-type``, ``--identity`` and ``--timeout``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from allranks.errors import UsageError
from allranks.local.settings import all_steps, change_step
from allranks.spec import Component, Pipeline, Step
from allranks.spec.check_machines import own_resources
from allranks.spec.step_sizes import SERVERLESS, StepSize, step_sizes

_IDENTITIES = ("managed", "user", "amltoken")
_DURATION = re.compile(r"(?P<number>[1-9]\d{0,9})\s*(?P<unit>s|m|min|h|d)?", re.IGNORECASE | re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION_RULE = "a number of seconds, or one with a unit: 90s, 30m, 2h, 1d"
_T = TypeVar("_T")

_Given: TypeAlias = "str | int | Mapping[str, Any] | None"
"""One value for all steps, or step to value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What is asked for by step; the empty name stands for all steps.

    For all means, of a VM size the steps on serverless compute that name none, of an identity (``managed``, ``user`` or
    ``amltoken``) the job, of a timeout in seconds the steps that have none.
    """

    instance_types: Mapping[str, str] = field(default_factory=dict)
    identities: Mapping[str, str] = field(default_factory=dict)
    timeouts: Mapping[str, int] = field(default_factory=dict)


def checked_placement(instance_type: _Given = None, identity: _Given = None, timeout: _Given = None) -> Placement:
    """What somebody gives in Python, checked; raises UsageError for a value that cannot be."""
    return Placement(
        _by_step(instance_type, "instance_type", _size_name),
        _by_step(identity, "identity", identity_word),
        _by_step(timeout, "timeout", duration_seconds),
    )


def parse_placement(instance_types: list[str], identities: list[str], timeouts: list[str]) -> Placement:
    """What the command line gives as ``STEP=VALUE`` or ``VALUE``; raises as ``checked_placement``."""
    options = {"--instance-type": instance_types, "--identity": identities, "--timeout": timeouts}
    return checked_placement(*(_pairs(option, texts) for option, texts in options.items()))


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        step, equals, value = text.rpartition("=")
        if (equals and not step) or not value.strip():
            raise UsageError(f"{option} {text!r} is not STEP=VALUE, nor a VALUE for all steps.")
        if step in found:
            raise UsageError(f"{option} is given twice for {f'step {step!r}' if step else 'all steps'}.")
        found[step] = value.strip()
    return found


def _by_step(given: _Given, name: str, read: Callable[[Any], _T]) -> dict[str, _T]:
    values = {} if given is None else given if isinstance(given, Mapping) else {"": given}
    found = {}
    for step, value in values.items():
        try:
            found[step] = read(value)
        except UsageError as error:
            raise UsageError(f"{name} of {step or 'all steps'}: {error.message}", error.hint) from None
    return found


def _size_name(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\w.-]+", value, re.ASCII):
        return value
    raise UsageError(f"{value!r} is no VM size.", "See docs/sizes.md.")


def identity_word(value: Any) -> str:
    """``managed``, ``user`` or ``amltoken``, in any spelling that the SDK takes; raises UsageError."""
    word = str(value).lower().replace("_", "").removesuffix("identity")
    if word in _IDENTITIES:
        return word
    raise UsageError(f"{value!r} is no identity of a job.", f"It is one of {', '.join(_IDENTITIES)}.")


def duration_seconds(value: Any) -> int:
    """Seconds of ``90``, ``"90"``, ``"90s"``, ``"30m"``, ``"2h"`` or ``"1d"``; raises UsageError."""
    match = None if isinstance(value, (bool, float)) else _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise UsageError(f"{value!r} is no time.", f"Give {_DURATION_RULE}.")
    return int(match["number"]) * _SECONDS[(match["unit"] or "").lower()]


def place_steps(pipeline: Pipeline, asked: Placement) -> tuple[Pipeline, Mapping[str, Mapping[str, Any]]]:
    """Set sizes and timeouts in the pipeline; returns it, and step to what ``scale`` has to set on the SDK's step.

    Raises:
        UnknownNameError: no such step.
        UsageError: a pipeline in place of a step, or the size of a step that runs on a cluster.
    """
    where = {one.step: one for one in step_sizes(pipeline)}
    steps = {name: step for name, step in all_steps(pipeline) if isinstance(step.component, Component)}
    changes: dict[str, dict[str, Any]] = {}
    for key, values in (
        ("instance_type", _sizes(where, asked.instance_types)),
        ("identity", {step: value for step, value in asked.identities.items() if step}),
        ("timeout", _timeouts(steps, asked.timeouts)),
    ):
        for step, value in values.items():
            changes.setdefault(step, {})[key] = value
    for name, change in changes.items():
        pipeline = change_step(pipeline, name, lambda step, change=change: _changed(step, change))  # type: ignore[misc]
    return pipeline, changes


def _sizes(where: Mapping[str, StepSize], asked: Mapping[str, str]) -> dict[str, str]:
    """Step to size; a cluster's own size counts there, so naming another would be without effect."""
    for name in asked:
        if name in where and not where[name].is_serverless:
            message = f"instance_type of {name}: it runs on the compute {where[name].compute!r}, whose own size counts."
            raise UsageError(message, f"Take a cluster of that size, or --compute {SERVERLESS}.")
    if "" not in asked:
        return dict(asked)
    free = [name for name, one in where.items() if one.is_serverless and one.size is None]
    if not free and not asked.keys() - {""}:
        message = "instance_type of all steps: each runs on a cluster, or names a size of its own."
        raise UsageError(message, f"Name a step: --instance-type STEP={asked['']}, or --compute {SERVERLESS}.")
    return dict.fromkeys(free, asked[""]) | {name: size for name, size in asked.items() if name}


def _timeouts(steps: Mapping[str, Step], asked: Mapping[str, int]) -> dict[str, int]:
    free = [name for name, step in steps.items() if step.timeout is None and step.kind == "command"]
    everywhere = dict.fromkeys(free, asked[""]) if "" in asked else {}
    return everywhere | {name: seconds for name, seconds in asked.items() if name}


def _changed(step: Step, change: Mapping[str, Any]) -> Step:
    if not isinstance(step.component, Component):
        inner = ", ".join(f"{step.name}.{name}" for name in step.component.steps)
        raise UsageError(f"{', '.join(change)} of {step.name}: it is a pipeline.", f"Its steps: {inner}.")
    if "instance_type" in change:
        step = replace(step, resources=replace(own_resources(step), instance_type=change["instance_type"]))
    return replace(step, timeout=change["timeout"]) if "timeout" in change else step

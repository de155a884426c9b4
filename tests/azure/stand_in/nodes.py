"""What the service refuses in the steps of a pipeline: values, ports that do not fit, references to nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.azure.stand_in.exchange import RefusedError

Declared = Mapping[str, Any]
Inputs = Mapping[str, tuple[Declared, Any]]
"""A pipeline's inputs: declaration and value."""

_PARENT_INPUT = re.compile(r"\$\{\{parent\.inputs\.([\w.]+)\}\}")
_STEP_OUTPUT = re.compile(r"\$\{\{parent\.jobs\.(\w+)\.outputs\.(\w+)\}\}")
_LITERALS = {"string": str, "integer": int, "number": float, "boolean": None}
_FOLDERS = {"uri_folder", "mltable", "mlflow_model", "triton_model"}


def check_nodes(
    nodes: Mapping[str, Any], inputs: Inputs, outputs: Mapping[str, Any], specifications: Mapping[str, Declared]
) -> None:
    """Refuse the first step with something wrong.

    Args:
        nodes: the steps as they were sent.
        inputs: of the pipeline.
        outputs: of the pipeline.
        specifications: the component of each step.
    """
    for step, node in nodes.items():
        declared = specifications[step].get("inputs", {})
        given = node.get("inputs") or {}
        searched = set(node.get("search_space") or {})
        for port in given:
            if port not in declared:
                raise _wrong(f"Step {step} has an input {port}, which its component has not.")
        for port, rule in declared.items():
            value = (given.get(port) or {}).get("value", (given.get(port) or {}).get("uri"))
            if value is not None:
                _check_input(f"Step {step}, input {port}", value, rule, inputs, nodes, specifications)
            elif port not in searched and not rule.get("optional") and rule.get("default") is None:
                raise _wrong(f"Step {step}: the required input {port} has no value.")
        for port in node.get("outputs") or {}:
            if port not in specifications[step].get("outputs", {}):
                raise _wrong(f"Step {step} has an output {port}, which its component has not.")
        _check_counts(step, node, inputs)
    _check_outputs(nodes, outputs)


def _check_input(
    what: str,
    value: Any,
    rule: Declared,
    inputs: Inputs,
    nodes: Mapping[str, Any],
    specifications: Mapping[str, Declared],
) -> None:
    if match := _STEP_OUTPUT.fullmatch(str(value)):
        step, port = match.groups()
        if step not in nodes or port not in specifications[step].get("outputs", {}):
            raise _wrong(f"{what}: there is no output {port} of a step {step}.")
        _fit(what, specifications[step]["outputs"][port]["type"], rule["type"])
    elif match := _PARENT_INPUT.fullmatch(str(value)):
        declared, bound = inputs.get(match[1], ({}, None))
        if declared.get("type") not in (None, *_LITERALS):
            _fit(what, declared["type"], rule["type"])
        elif bound is not None and declared.get("type") is None:
            check_value(what, bound, rule)
        elif match[1] not in inputs and not rule.get("optional") and rule.get("default") is None:
            raise _wrong(f"{what}: the pipeline's input {match[1]} has no value.")
    elif rule["type"] in _LITERALS and "${{" not in str(value):
        check_value(what, value, rule)


def _fit(what: str, given: str, wanted: str) -> None:
    if wanted in _LITERALS or (given == "uri_file") != (wanted == "uri_file"):
        if {given, wanted} & {"custom_model", "path"}:
            return
        raise _wrong(f"{what}: {given} does not fit {wanted}.")


def check_value(what: str, value: Any, rule: Declared) -> None:
    """Refuse a literal of another type, out of its range, or not among the choices."""
    kind = rule["type"]
    if kind not in _LITERALS:
        raise _wrong(f"{what}: {value!r} is a literal, and the input takes {kind}.")
    try:
        number = _LITERALS[kind](str(value)) if kind in ("integer", "number") else None
    except ValueError:
        raise _wrong(f"{what}: {value!r} is not of type {kind}.") from None
    if number is not None:
        low, high = (float(rule[end]) if rule.get(end) is not None else None for end in ("min", "max"))
        if (low is not None and number < low) or (high is not None and number > high):
            raise _wrong(f"{what}: {value} is not between {low} and {high}.")
    if rule.get("enum") and str(value) not in map(str, rule["enum"]):
        raise _wrong(f"{what}: {value!r} is none of {rule['enum']}.")


def _check_counts(step: str, node: Mapping[str, Any], inputs: Inputs) -> None:
    """Numbers of nodes and processes, also where they are bound to the pipeline's inputs."""
    counts = {
        "instance_count": (node.get("resources") or {}).get("instance_count"),
        "process_count_per_instance": (node.get("distribution") or {}).get("process_count_per_instance"),
    }
    for name, count in counts.items():
        if match := _PARENT_INPUT.fullmatch(str(count)):
            count = inputs.get(match[1], ({}, None))[1]  # noqa: PLW2901 - the value that it is bound to
        if count is not None and (not str(count).isdigit() or int(count) < 1):
            raise _wrong(f"Step {step}: {name} is {count!r}; it has to be a whole number, at least 1.")
    distribution, resources = node.get("distribution") or {}, node.get("resources") or {}
    workers = distribution.get("worker_count")
    if workers is not None and str(workers) != str(resources.get("instance_count", 1)):
        raise _wrong(f"Step {step}: worker_count {workers} is not instance_count {resources.get('instance_count', 1)}.")


def _check_outputs(nodes: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Every output of the pipeline comes from a step."""
    fed = {str(setting.get("value")) for node in nodes.values() for setting in (node.get("outputs") or {}).values()}
    for name in outputs:
        if f"${{{{parent.outputs.{name}}}}}" not in fed:
            raise _wrong(f"No step feeds the pipeline's output {name}.")


def _wrong(message: str) -> RefusedError:
    return RefusedError(400, "UserError", message)

"""Checks of a sweep's search space against the inputs of its trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.expressions import find_references
from allranks.spec.graph import input_references
from allranks.spec.model import Component, Input, Step, Sweep
from allranks.spec.search_space import has_fractions, value_at
from allranks.spec.section import a_or_an, shown_value
from allranks.spec.suggest import did_you_mean
from allranks.spec.values import check_command_values, check_value


class SpaceFinding(NamedTuple):
    """What is wrong with the search of one input."""

    name: str
    message: str
    hint: str = ""


def check_space(step: Step, sweep: Sweep) -> Iterator[SpaceFinding]:
    """Check that the trial has what is searched, and that its inputs take the values."""
    used = {reference.name for _, reference in input_references(step) if reference.scope == "search_space"}
    if isinstance(step.component, Component):
        used |= {r.name for r in find_references(step.component.command) if r.scope == "search_space"}
    for name, search in sweep.space.items():
        declared = step.component.inputs.get(name)
        if declared is not None:
            values = search.get("values")
            checked = _choices(declared, values) if isinstance(values, list) else _range(declared, search, sweep)
            yield from checked
            if isinstance(values, list) and isinstance(step.component, Component):
                yield from _quotes(step.component, name, values)
        elif name not in used:
            hint = did_you_mean(name, step.component.inputs, "inputs")
            yield SpaceFinding(name, f"the trial has no input '{name}'.", hint)


def _choices(declared: Input, values: list[Any]) -> Iterator[SpaceFinding]:
    for value in values:
        if isinstance(value, dict):  # a choice with choices of its own
            continue
        if value is None or isinstance(value, list):
            message = f"{shown_value(value)} cannot be chosen; write texts, numbers or booleans."
            yield SpaceFinding(declared.name, message)
        elif isinstance(value, str) and find_references(value):
            message = f"{shown_value(value)} is a binding; Azure ML takes none here."
            yield SpaceFinding(declared.name, message, "Write the value.")
        elif isinstance(typed := check_value(declared, value), Problem):
            yield SpaceFinding(declared.name, typed.message, typed.hint)


def _quotes(component: Component, name: str, values: list[Any]) -> Iterator[SpaceFinding]:
    for value in values:
        if isinstance(value, str):
            for problem in check_command_values(component, {name: value}):
                yield SpaceFinding(name, problem.message, problem.hint)


def _range(declared: Input, search: Mapping[str, object], sweep: Sweep) -> Iterator[SpaceFinding]:
    """Check the two ends of a search of numbers; one with mistakes of its own is passed over."""
    if any(key not in search for key in schema.SEARCH_KEYS[str(search["type"])]):
        return
    low, high = search.get("min_value"), search.get("max_value")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        yield SpaceFinding(declared.name, f"min_value {low} is above max_value {high}.")
        return
    if search.get("q") == 0 or not isinstance(search.get("upper", 1), (int, float)):
        return
    if declared.type == "integer" and has_fractions(search):
        message = f"a search of type {search['type']} gives fractions, and the input takes {a_or_an('integer')}."
        yield SpaceFinding(declared.name, message, "Use randint, or quniform with q: 1.")
        return
    bounded = "sigma" not in search
    for place in (0.0, 1.0):
        end = value_at(search, place, sweep.log_base)
        if isinstance(end, float) and math.isinf(end):
            hint = "The ends of a logarithmic search are exponents." if bounded else ""
            yield SpaceFinding(declared.name, "its values are too large for a number.", hint)
            return
        typed = check_value(declared, end) if bounded else None
        if isinstance(typed, Problem):
            yield SpaceFinding(declared.name, f"the search reaches {typed.message}", typed.hint)

"""Checks of a sweep's search space against the inputs of its trial."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from allranks.errors import Problem
from allranks.spec import schema
from allranks.spec.check_bindings import StepBindings
from allranks.spec.expressions import find_references
from allranks.spec.graph import input_references
from allranks.spec.model import Component, Input, Step, Sweep
from allranks.spec.search_space import has_fractions, value_at
from allranks.spec.section import shown_value
from allranks.spec.values import check_command_values, check_value


def check_space(bindings: StepBindings, sweep: Sweep) -> Iterator[Problem]:
    """Check that the trial has what is searched, and that its inputs take the values."""
    step, component = bindings.step, bindings.step.component
    used = {reference.name for reference in input_references(step) if reference.scope == "search_space"}
    if isinstance(component, Component):
        used |= {r.name for r in find_references(component.command) if r.scope == "search_space"}
    for name, search in sweep.space.items():
        declared, values = component.inputs.get(name), search.get("values")
        if declared is not None:
            found = _choices(step, declared, values) if isinstance(values, list) else _range(declared, search, sweep)
            yield from (bindings.wrong(f"search_space.{name}", one.message, one.hint, one.severity) for one in found)
        elif name not in used:
            message = f"the trial has no input '{name}'."
            yield bindings.unknown(f"search_space.{name}", message, name, component.inputs, "inputs")


def _choices(step: Step, declared: Input, values: list[Any]) -> Iterator[Problem]:
    for value in values:
        if isinstance(value, dict):  # a choice with choices of its own
            continue
        if value is None or isinstance(value, list):
            yield Problem(f"{shown_value(value)} cannot be chosen; write texts, numbers or booleans.")
        elif isinstance(value, str) and find_references(value):
            yield Problem(f"{shown_value(value)} is a binding; Azure ML takes none here.", hint="Write the value.")
        elif isinstance(typed := check_value(declared, value), Problem):
            yield typed
    for value in values:
        if isinstance(value, str) and isinstance(step.component, Component):
            yield from check_command_values(step.component, {declared.name: value})


def _range(declared: Input, search: Mapping[str, object], sweep: Sweep) -> Iterator[Problem]:
    """Check the two ends of a search of numbers; one with mistakes of its own is passed over."""
    if any(key not in search for key in schema.SEARCH_KEYS[str(search["type"])]):
        return
    low, high = search.get("min_value"), search.get("max_value")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
        yield Problem(f"min_value {low} is above max_value {high}.")
        return
    if search.get("q") == 0 or not isinstance(search.get("upper", 1), (int, float)):
        return
    if declared.type == "integer" and has_fractions(search):
        # The SDK takes it, and a published script rounds what it gets; the service was not asked.
        message = f"a search of type {search['type']} gives fractions, and the input takes an integer."
        yield Problem(message, hint="Use randint, or quniform with q: 1.", severity="warning")
        declared = replace(declared, type="number")
    bounded = "sigma" not in search
    for place in (0.0, 1.0):
        end = value_at(search, place, sweep.log_base)
        if isinstance(end, float) and math.isinf(end):
            hint = "The ends of a logarithmic search are exponents." if bounded else ""
            yield Problem("its values are too large for a number.", hint=hint)
            return
        typed = check_value(declared, end) if bounded else None
        if isinstance(typed, Problem):
            yield Problem(f"the search reaches {typed.message}", hint=typed.hint)

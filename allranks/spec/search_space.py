"""The values that a search space holds: from a place between 0 and 1 to a value of the distribution.

The formulas are those of Azure ML's parameter expressions: loguniform is exp(uniform(min_value, max_value)), quniform
is round(uniform(min_value, max_value) / q) * q, randint is a whole number from 0 below ``upper``, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from allranks.spec import schema
from allranks.spec.model import Literal

_EDGE = 2.0**-53  # the nearest to 0 and to 1 that a normal distribution is asked for: 8.2 sigma


def value_at(search: Mapping[str, Any], place: float, log_base: float = math.e) -> Literal:
    """The value of a search, as ``Sweep.space`` holds it, at a place from 0 to 1 of its cumulative distribution.

    Evenly spread places give values that are spread as the distribution says; ``log_base`` stands for e in the
    logarithmic types. Of a choice it is one of the values as it was written. Too large a power is infinity.
    """
    keys = schema.SEARCH_KEYS[str(search["type"])]
    if "values" in keys:
        values: list[Literal] = search["values"]
        return values[min(int(place * len(values)), len(values) - 1)]
    if "upper" in keys:
        upper = int(search["upper"])
        return min(int(place * upper), upper - 1)
    if "min_value" in keys:
        low, high = search["min_value"], search["max_value"]
        value = min(max(low + place * (high - low), low), high)
    else:
        from statistics import NormalDist  # few pipelines sweep, and it brings fractions and random along

        inside = min(max(place, _EDGE), 1 - _EDGE)
        value = search["mu"] + search["sigma"] * NormalDist().inv_cdf(inside)
    if search["type"] in schema.LOGARITHMIC_SEARCHES:
        value = _power(log_base, value)
    return _on_grid(value, search["q"]) if "q" in keys else float(value)


def _on_grid(value: float, step: float) -> float:
    """The multiple of ``step`` nearest to ``value``: an integer when the step is one, else without binary dust."""
    if not math.isfinite(value):
        return value
    number = Decimal(str(step)) * round(value / step)
    return int(number) if step == int(step) else float(number)


def has_fractions(search: Mapping[str, Any]) -> bool:
    """Whether a search of numbers gives values that are not whole."""
    keys = schema.SEARCH_KEYS[str(search["type"])]
    return not {"values", "upper"} & {*keys} and not ("q" in keys and search["q"] == int(search["q"]))


def _power(base: float, exponent: float) -> float:
    try:
        return math.exp(exponent) if base == math.e else float(base**exponent)
    except OverflowError:
        return math.inf

"""The values that a search space holds: from a place between 0 and 1 to a value of the distribution.

The formulas are those of Azure ML's parameter expressions: loguniform is exp(uniform(min_value, max_value)), quniform
is round(uniform(min_value, max_value) / q) * q, randint is a whole number from 0 below ``upper``, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import NormalDist
from typing import Any

from allranks.spec.model import Literal

_EDGE = 2.0**-53  # the nearest to 0 and to 1 that a normal distribution is asked for: 8.2 sigma


@dataclass(frozen=True, slots=True)
class SearchType:
    """A type of search.

    Attributes:
        keys: what the YAML says of it beside the type; with ``q`` its values are multiples of that.
        value: from the search and a place to the value, or to its logarithm.
        is_log: whether that is a logarithm.
        is_bounded: whether the values have two ends.
        is_discrete: whether they are whole numbers, or no numbers at all.
    """

    keys: tuple[str, ...]
    value: Callable[[Mapping[str, Any], float], Literal]
    is_log: bool = False
    is_bounded: bool = True
    is_discrete: bool = False


def _choice(search: Mapping[str, Any], place: float) -> Literal:
    values: list[Literal] = search["values"]
    return values[min(int(place * len(values)), len(values) - 1)]


def _below(search: Mapping[str, Any], place: float) -> int:
    upper = int(search["upper"])
    return min(int(place * upper), upper - 1)


def _uniform(search: Mapping[str, Any], place: float) -> float:
    low, high = search["min_value"], search["max_value"]
    value: float = min(max(low + place * (high - low), low), high)
    return value


def _normal(search: Mapping[str, Any], place: float) -> float:
    value: float = search["mu"] + search["sigma"] * NormalDist().inv_cdf(min(max(place, _EDGE), 1 - _EDGE))
    return value


_ENDS, _BELL = ("min_value", "max_value"), ("mu", "sigma")
SEARCH_TYPES: Mapping[str, SearchType] = {
    "choice": SearchType(("values",), _choice, is_discrete=True),
    "randint": SearchType(("upper",), _below, is_discrete=True),
    "uniform": SearchType(_ENDS, _uniform),
    "loguniform": SearchType(_ENDS, _uniform, is_log=True),
    "quniform": SearchType((*_ENDS, "q"), _uniform),
    "qloguniform": SearchType((*_ENDS, "q"), _uniform, is_log=True),
    "normal": SearchType(_BELL, _normal, is_bounded=False),
    "lognormal": SearchType(_BELL, _normal, is_log=True, is_bounded=False),
    "qnormal": SearchType((*_BELL, "q"), _normal, is_bounded=False),
    "qlognormal": SearchType((*_BELL, "q"), _normal, is_log=True, is_bounded=False),
}


def value_at(search: Mapping[str, Any], place: float, log_base: float = math.e) -> Literal:
    """The value of a search at a place of its cumulative distribution.

    Args:
        search: the type and its numbers, as ``Sweep.space`` holds them.
        place: from 0 to 1; evenly spread places give values that are spread as the distribution says.
        log_base: what stands for e in the logarithmic types.

    Returns:
        A number, or one of the values of a choice as it was written. Too large a power is infinity.
    """
    type_ = SEARCH_TYPES[str(search["type"])]
    value = type_.value(search, place)
    if type_.is_discrete or isinstance(value, str):
        return value
    if type_.is_log:
        value = _power(log_base, value)
    return _on_grid(value, search["q"]) if "q" in type_.keys else float(value)


def _on_grid(value: float, step: float) -> float:
    """The multiple of ``step`` nearest to ``value``: an integer when the step is one, else without binary dust."""
    if not math.isfinite(value):
        return value
    number = Decimal(str(step)) * round(value / step)
    return int(number) if step == int(step) else float(number)


def has_fractions(search: Mapping[str, Any]) -> bool:
    """Whether a search of numbers gives values that are not whole."""
    type_ = SEARCH_TYPES[str(search["type"])]
    return not type_.is_discrete and not ("q" in type_.keys and search["q"] == int(search["q"]))


def _power(base: float, exponent: float) -> float:
    try:
        return math.exp(exponent) if base == math.e else float(base**exponent)
    except OverflowError:
        return math.inf

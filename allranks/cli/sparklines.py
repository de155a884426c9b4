"""A metric's curve in one line of a terminal."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise

from allranks.local.curves import is_logarithmic, is_minor
from allranks.local.logged import MetricCurve

SHOWN_METRICS = ("accuracy", "validation_accuracy", "loss", "samples_per_second")
"""What is shown first of many metrics."""

_BLOCKS, _PLAIN = "▁▂▃▄▅▆▇█", "_.-~=+*#"  # the second for terminals that have letters only


@cache
def draws_blocks() -> bool:
    """Whether the standard output can show block characters; the console of Linux has few of them."""
    output = sys.__stdout__  # in place of sys.stdout rich puts one that does not know its encoding
    try:
        f"{_BLOCKS}░…".encode(output.encoding if output is not None else "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return os.environ.get("TERM") not in {"linux", "dumb"}


def draw_sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as heights, one character each; of more than the width has room for, the mean of neighbours.

    The axis is logarithmic where that of the page is.

    Args:
        values: finite.
        width: characters, at least 1.
    """
    columns = min(width, len(values))
    if columns == 0:
        return ""
    shown = list(_heights(values))
    edges = [len(shown) * column // columns for column in range(columns + 1)]
    means = [sum(shown[start:end]) / (end - start) for start, end in pairwise(edges)]
    low, high = min(means), max(means)
    levels = _BLOCKS if draws_blocks() else _PLAIN
    last = len(levels) - 1
    return "".join(levels[round(last * (mean - low) / ((high - low) or 1.0))] for mean in means)


def _heights(values: Sequence[float]) -> Iterable[float]:
    """The values, or their logarithms, between 0 and 1, so that no mean of them overflows."""
    scaled = [math.log10(value) for value in values] if is_logarithmic(values) else [value / 2 for value in values]
    low, high = min(scaled), max(scaled)
    return ((value - low) / ((high - low) or 1.0) for value in scaled)


def main_metric(curves: Mapping[str, MetricCurve], primary: str = "") -> str:
    """The metric whose curve is shown: a sweep's primary one, or else the first that matters; it has two values.

    Empty where none has two.
    """
    drawn = [name for name, points in curves.items() if len(points) > 1]
    ordered = [primary, *SHOWN_METRICS, *(name for name in drawn if not is_minor(name)), *drawn]
    return next((name for name in ordered if name in drawn), "")

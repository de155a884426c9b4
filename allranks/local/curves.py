"""The charts of a step's metrics: training and validation of one metric together, each with its own axes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from allranks.local.logged import MetricCurve

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 8, 20  # around the lines, in pixels, for the numbers of the axes
_SIZE, _MINOR_SIZE = (340, 170), (240, 110)
_LOGARITHMIC_FROM = 100.0  # the largest value through the smallest, above which a linear axis hides the small ones
_MOST_POINTS = 400  # of one line; a page of a long training stays small

_MINOR = re.compile(r"learning_rate|_per_second|seconds|norm|memory|epoch|^lr$|^time/")
_OF_VALIDATION = re.compile(r"^(?:validation|valid|val|eval|test|train)[_/](?=.)")

_UNITS = {
    "seconds": "s",
    "s": "s",
    "second": "s",
    "ms": "ms",
    "gb": "GB",
    "mb": "MB",
    "percent": "%",
    "accuracy": "share",
    "share": "share",
    "utilisation": "share",
}
"""What names of metrics end in, and the unit that it stands for."""
_OF_RANKS = re.compile(r"(?<=_s)_(?:min|max)$")  # of the mean over the ranks, in the trainers' time split

_LARGEST, _SMALLEST = 1e300, 1e-300  # beyond these an axis would overflow; drawn as these, and as 0


@dataclass(frozen=True, slots=True)
class _Line:
    """One metric: the points of its polyline, its last value, and the number of its colour."""

    name: str
    points: str
    last: float
    colour: int


@dataclass(frozen=True, slots=True)
class _Chart:
    """A chart as the page draws it."""

    title: str  # loss and validation_loss over steps
    width: int
    height: int
    minor: bool  # of what a training is not judged by; drawn smaller
    logarithmic: bool
    lines: tuple[_Line, ...]
    unit: str  # of the values; empty where it is not known
    ticks: tuple[tuple[float, str], ...]  # height in pixels and number of each line across
    first: str
    last: str
    across: str = "step"  # what the values stand over


def draw_charts(curves: Mapping[str, MetricCurve]) -> list[_Chart]:
    """A chart for each metric with at least two values, in the order of the curves, the minor ones last."""
    groups: dict[str, dict[str, MetricCurve]] = {}
    for name, points in curves.items():
        groups.setdefault(_OF_RANKS.sub("", _OF_VALIDATION.sub("", name)), {})[name] = [
            (x, _drawable(y)) for x, y in points
        ]
    drawn = [_chart(group) for group in groups.values() if any(len(points) > 1 for points in group.values())]
    return sorted(drawn, key=lambda chart: chart.minor)


def draw_beside(metric: str, curves: Mapping[str, MetricCurve]) -> _Chart:
    """One chart of a metric with a line for each of the curves, such as those of several runs."""
    drawable = {name: [(x, _drawable(y)) for x, y in points] for name, points in curves.items()}
    return replace(_chart(drawable), minor=is_minor(metric), unit=metric_unit(metric))


def draw_over_seconds(title: str, unit: str, curves: Mapping[str, MetricCurve]) -> _Chart:
    """One chart, from 0 on, of what was measured over time rather than logged at a step; its lines keep their order."""
    drawn = _chart({name: [(x, _drawable(y)) for x, y in points] for name, points in curves.items()}, floor=(0.0,))
    chosen = {line.name: line for line in drawn.lines}
    lines = tuple(replace(chosen[name], colour=number % 8) for number, name in enumerate(curves))
    whole = f"{title} over seconds: {', '.join(curves)}"
    return replace(drawn, lines=lines, title=whole, minor=True, unit=unit, across="seconds")


def is_minor(name: str) -> bool:
    """Whether a metric is one that no training is judged by: a learning rate, a speed, a norm."""
    return _MINOR.search(name) is not None


def is_logarithmic(values: Collection[float]) -> bool:
    """Whether values are so far apart that a linear axis would hide the small ones."""
    return min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC_FROM


def metric_unit(name: str) -> str:
    """The unit that a metric's name tells, such as ``images/s`` of images_per_second; empty where it tells none."""
    amount, per, time = name.rpartition("/")[2].partition("_per_")
    if per:
        return f"{amount.replace('_', ' ')}/{_UNITS.get(time, time.replace('_', ' '))}"
    return next((unit for ending, unit in _UNITS.items() if f"_{amount}".endswith(f"_{ending}")), "")


def thin_curve(points: MetricCurve, most: int) -> MetricCurve:
    """The points; of more than so many the first, the last, and the lowest and highest of each stretch between."""
    if len(points) <= most:
        return points
    inner, stretches = points[1:-1], max(1, most // 2 - 1)
    ends = [len(inner) * number // stretches for number in range(stretches + 1)]
    kept = [points[0]]
    for start, end in pairwise(ends):
        places = range(start, end)
        extremes = {min(places, key=lambda place: inner[place][1]), max(places, key=lambda place: inner[place][1])}
        kept += [inner[place] for place in sorted(extremes)]
    return [*kept, points[-1]]


def _drawable(value: float) -> float:
    return 0.0 if abs(value) < _SMALLEST else max(-_LARGEST, min(value, _LARGEST))


def _chart(group: dict[str, MetricCurve], floor: Collection[float] = ()) -> _Chart:
    """The chart of some curves; its axis reaches down to the ``floor``, if there is one."""
    minor = all(map(is_minor, group))
    width, height = _MINOR_SIZE if minor else _SIZE
    xs = [x for points in group.values() for x, _ in points]
    ys = [*floor, *(y for points in group.values() for _, y in points)]
    logarithmic = is_logarithmic(ys)
    numbers = _powers(min(ys), max(ys)) if logarithmic else _round_numbers(min(ys), max(ys))
    low, high = min([*ys, *numbers]), max([*ys, *numbers])
    scale = math.log10 if logarithmic else float

    def across(x: float) -> float:
        return _LEFT + (width - _LEFT - _RIGHT) * (x - min(xs)) / ((max(xs) - min(xs)) or 1.0)

    def up(y: float) -> float:
        share = (height - _TOP - _BOTTOM) * (scale(y) - scale(low))
        return height - _BOTTOM - share / ((scale(high) - scale(low)) or 1.0)

    lines = tuple(
        _Line(name, " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in _thinned(points)), points[-1][1], index % 4)
        for index, (name, points) in enumerate(sorted(group.items(), key=lambda one: len(one[0])))
    )
    ticks = tuple((round(up(number), 1), f"{number:.6g}") for number in numbers)
    title = f"{' and '.join(line.name for line in lines)} over steps"
    ends = f"{min(xs):g}", f"{max(xs):g}"
    return _Chart(title, width, height, minor, logarithmic, lines, metric_unit(lines[0].name), ticks, *ends)


def _thinned(points: MetricCurve) -> Iterable[tuple[float, float]]:
    """Not too many points; a single one twice, since that is drawn as a dot."""
    return [*points, *points] if len(points) == 1 else thin_curve(points, _MOST_POINTS)


def _round_numbers(low: float, high: float) -> list[float]:
    """Two to six round numbers that enclose the values: multiples of 1, 2 or 5 times a power of ten."""
    if high == low:
        return [low]
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """The powers of ten that enclose the values, at most six of them."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    step = max(1, math.ceil((last - first) / 5))
    return [10.0**power for power in range(first, last + step, step)]

"""The pictures of a sweep: its metric by trial and against each input, and all inputs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from allranks.local.result import SUCCEEDED
from allranks.wording import short_number

_WIDTH, _HEIGHT = 480, 120  # of the metric by trial, in pixels
_SIDE = 150  # of the metric against one input
_COLUMN, _TALL, _MARGIN = 130, 180, 24  # between two axes of all inputs, their height, and the room around them


def sweep_pictures(step: Mapping[str, Any]) -> dict[str, Any]:
    """What the template draws of a sweep: ``plot``, ``inputs`` and ``parallel``; empty without values of its metric."""
    trials = [trial for trial in step.get("trials", ()) if trial["metric"] is not None]
    if not trials:
        return {}
    values = [trial["metric"] for trial in trials]
    names = list(trials[0]["parameters"])
    return {
        "plot": _plot(step, trials, values),
        "inputs": [_against(name, trials, values) for name in names],
        "parallel": _parallel(names, step, trials),
    }


def _plot(step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, Any]:
    """The primary metric by trial as dots, the best so far as a line."""
    low, high, last = min(values), max(values), max(1, len(step["trials"]) - 1)
    better = max if step["goal"] == "maximize" else min

    def place(number: int, value: float) -> tuple[float, float]:
        return 8 + (_WIDTH - 16) * number / last, _HEIGHT - 8 - (_HEIGHT - 16) * (value - low) / ((high - low) or 1.0)

    dots = [(*place(trial["number"], trial["metric"]), trial) for trial in trials]
    ranked = [trial for trial in trials if trial["status"] == SUCCEEDED]
    best = accumulate((trial["metric"] for trial in ranked), better)
    line = [place(trial["number"], value) for trial, value in zip(ranked, best, strict=True)]
    return {"dots": dots, "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in line), "low": low, "high": high}


def _against(name: str, trials: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, Any]:
    """The primary metric against one input: dots, and the ends of both axes."""
    shares, low, high = _shares([trial["parameters"].get(name) for trial in trials])
    heights, least, most = _shares(values)
    inner = _SIDE - 24
    dots = [
        (12 + inner * x, _SIDE - 12 - inner * y, trial) for x, y, trial in zip(shares, heights, trials, strict=True)
    ]
    return {"name": name, "low": low, "high": high, "least": least, "most": most, "dots": dots, "side": _SIDE}


def _parallel(names: Sequence[str], step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A line for each trial over an axis for each input and, at the right, one for the metric."""
    columns = [_shares([trial["parameters"].get(name) for trial in trials]) for name in names]
    columns.append(_shares([trial["metric"] for trial in trials]))
    lines = []
    for index, trial in enumerate(trials):
        points = [
            (_MARGIN + 40 + _COLUMN * column, _MARGIN + _TALL * (1 - shares[index]))
            for column, (shares, _, _) in enumerate(columns)
        ]
        share = columns[-1][0][index]
        good = share if step["goal"] == "maximize" else 1 - share
        lines.append((" ".join(f"{x:.1f},{y:.1f}" for x, y in points), round(good, 3), trial))
    titles = [*names, step["primary_metric"]]
    axes = [
        (_MARGIN + 40 + _COLUMN * column, title, low, high)
        for column, (title, (_, low, high)) in enumerate(zip(titles, columns, strict=True))
    ]
    width, height = 2 * (_MARGIN + 40) + _COLUMN * (len(axes) - 1), _TALL + 2 * _MARGIN
    return {"lines": lines, "axes": axes, "width": width, "height": height, "top": _MARGIN, "bottom": _MARGIN + _TALL}


def _shares(values: Sequence[Any]) -> tuple[list[float], str, str]:
    """Where values lie between the ends of their axis, 0 to 1, and the ends in words; choices are in order of text."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        low, high = min(values), max(values)
        return [(value - low) / ((high - low) or 1.0) for value in values], short_number(low), short_number(high)
    choices = sorted({str(value) for value in values})
    last = max(1, len(choices) - 1)
    return [choices.index(str(value)) / last for value in values], choices[0], choices[-1]

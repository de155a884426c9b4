"""The pictures of a sweep: its metric by trial and against each input, and all inputs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from allranks.local.result import SUCCEEDED
from allranks.wording import short_number

_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 8, 12, 38  # around what is drawn, in pixels, for the ends of the axes
_HEIGHT = 190
_WIDTH = 300  # three stand side by side, one on a telephone
_PAD = 10  # between the frame and the outermost dots
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
        "inputs": [_against(name, step, trials, values) for name in names],
        "parallel": _parallel(names, step, trials),
    }


def _plot(step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], values: Sequence[float]) -> dict[str, Any]:
    """The primary metric by trial as dots, the best so far as a line."""
    last = max(1, len(step["trials"]) - 1)
    places = [trial["number"] / last for trial in trials]
    drawn = _scatter(("trial", places, "0", str(last)), (step["primary_metric"], values), trials)
    better = max if step["goal"] == "maximize" else min
    ranked = [trial for trial in trials if trial["status"] == SUCCEEDED]
    across = {trial["number"]: x for x, _, trial in drawn["dots"]}
    heights = {trial["metric"]: y for _, y, trial in drawn["dots"]}
    best = accumulate((trial["metric"] for trial in ranked), better)
    line = [(across[trial["number"]], heights[value]) for trial, value in zip(ranked, best, strict=True)]
    return {**drawn, "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in line)}


def _against(
    name: str, step: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], values: Sequence[float]
) -> dict[str, Any]:
    """The primary metric against one input."""
    across = _shares([trial["parameters"].get(name) for trial in trials])
    return _scatter((name, *across), (step["primary_metric"], values), trials)


def _scatter(
    across: tuple[str, Sequence[float], str, str],
    upwards: tuple[str, Sequence[float]],
    trials: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """A dot for each trial in a frame, with names and ends of both axes; places across are 0 to 1."""
    name, shares, low, high = across
    heights, least, most = _shares(upwards[1])
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    wide, tall = right - _LEFT - 2 * _PAD, bottom - _TOP - 2 * _PAD
    dots = [
        (_LEFT + _PAD + wide * x, bottom - _PAD - tall * y, trial)
        for x, y, trial in zip(shares, heights, trials, strict=True)
    ]
    frame = {"left": _LEFT, "top": _TOP, "right": right, "bottom": bottom, "pad": _PAD}
    ends = {"low": low, "high": high, "least": least, "most": most}
    return {"name": name, "upwards": upwards[0], "dots": dots, "width": _WIDTH, "height": _HEIGHT, **frame, **ends}


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

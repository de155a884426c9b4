"""A run as a notebook shows it: a line for each step with its state, time, progress, main curve and measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.cli.live_table import brief_metrics
from allranks.cli.sparklines import main_metric
from allranks.local.curves import is_logarithmic, thin_curve
from allranks.local.folders import StepFolder
from allranks.local.logged import MetricCurve
from allranks.local.result import RUNNING, RunResult, StepResult, read_progress
from allranks.redaction import redact
from allranks.wording import duration_words, ranks_words, status_words

if TYPE_CHECKING:
    from jinja2 import Template

_WIDTH, _HEIGHT = 160, 26  # of a curve, in pixels
_MOST_POINTS = 200  # of a curve


@dataclass(frozen=True, slots=True)
class _Row:
    """What is shown of a step; ``points`` are those of its curve's polyline, ``share`` from 0 to 1 or None."""

    step: StepResult
    time: str
    share: float | None
    metric: str
    points: str
    metrics: str


def notebook_page(result: RunResult, curves: Mapping[str, Mapping[str, MetricCurve]]) -> str:
    """The run as a piece of HTML that needs nothing else; ``curves`` of each step by metric, by step."""
    rows = [_row(step, curves.get(name, {})) for name, step in result.steps.items()]
    return _template().render(
        run=result,
        rows=rows,
        width=_WIDTH,
        height=_HEIGHT,
        explanation=redact(result.explanation),
        report=result.run_dir / "report.html",
    )


def _row(step: StepResult, curves: Mapping[str, MetricCurve]) -> _Row:
    metric = main_metric(curves, step.sweep.metric if step.sweep else "")
    took = duration_words(step.seconds) if step.started is not None else ""
    return _Row(
        step,
        took,
        _share(step),
        metric,
        _points(curves[metric]) if metric else "",
        brief_metrics(step.metrics, metric),
    )


def _share(step: StepResult) -> float | None:
    """How much of a running step is done, if it says so."""
    if step.status != RUNNING:
        return None
    progress = read_progress(StepFolder(step.folder).metrics(), tail=True)
    return min(1.0, progress.step / progress.total) if progress.step is not None and progress.total else None


def _points(curve: MetricCurve) -> str:
    """The polyline of a curve, on the axes that the run's page would choose."""
    from math import log10

    shown = thin_curve(curve, _MOST_POINTS)
    scale = log10 if is_logarithmic([value for _, value in shown]) else float
    xs, ys = [place for place, _ in shown], [scale(value) for _, value in shown]
    across, up = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    return " ".join(
        f"{1 + (_WIDTH - 2) * (x - min(xs)) / across:.1f},{_HEIGHT - 1 - (_HEIGHT - 2) * (y - min(ys)) / up:.1f}"
        for x, y in zip(xs, ys, strict=True)
    )


@cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"ranks_words": ranks_words, "status_words": status_words}
    return environment.from_string((Path(__file__).parent / "run.html").read_text())

"""What a step has logged, wherever: rank 0's ``outputs/metrics.jsonl``, its MLflow run, event files for TensorBoard.

Each metric is shown once, from the first of these that has it: our components log every metric to the first two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from allranks.local.event_folders import EventCurves, event_places
from allranks.local.folders import RunFolder, RunsHome, StepFolder, read_json_file
from allranks.local.metrics_file import metrics_document, read_metrics
from allranks.local.result import child_runs_document, read_progress
from allranks.local.tracking.reading import ChildRun, MetricPoint, TrackingReader
from allranks.redaction import redact, redact_named

MetricCurve = list[tuple[float, float]]
"""The values of one metric by step, in the order of logging; none is NaN or infinite."""

_MOST_STEPS = 2**63  # JSON's whole numbers have no end, and those of MLflow and TensorBoard end here
_OWN_TAGS = "mlflow."  # MLflow notes there who started a run and from where


@dataclass(frozen=True, slots=True)
class LoggedValues:
    """What a step has logged so far.

    Attributes:
        metrics: the last value of each, NaN and infinities included.
        params: as MLflow keeps them, secrets blotted out.
        tags: those that the script has set, secrets blotted out.
        child_runs: the MLflow runs that it has made beside the step's own; secrets in their params are blotted out.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    child_runs: tuple[ChildRun, ...] = ()


def read_logged_values(
    folder: StepFolder, run_id: str | None, reader: TrackingReader, events: EventCurves
) -> LoggedValues:
    """Read the last values; it costs what metrics.jsonl is long, in MLflow a row for each name, and new events.

    Args:
        folder: of the step in the run that executed it.
        run_id: its MLflow run; None if it has none.
        reader: of the runs folder that both are in.
        events: the curves of its event files.
    """
    metrics = dict(read_progress(folder.metrics()).metrics)
    for name, value in reader.latest(run_id).items() if run_id is not None else ():
        metrics.setdefault(name, value)
    for name, points in events.look().items():
        metrics.setdefault(name, points[-1].value)
    if run_id is None:
        return LoggedValues(metrics)
    params, tags = (_redacted(reader.pairs(table, run_id)) for table in ("params", "tags"))
    shown = {name: tag for name, tag in tags.items() if not name.startswith(_OWN_TAGS)}
    children = tuple(
        replace(child, name=redact(child.name), params=_redacted(child.params)) for child in reader.made_by(run_id)
    )
    return LoggedValues(metrics, params, shown, children)


def read_metric_curves(
    folder: StepFolder, run_id: str | None, reader: TrackingReader, events: EventCurves
) -> dict[str, MetricCurve]:
    """Read all values of each metric; the arguments are those of ``read_logged_values``."""
    curves = _curves_of_file(folder)
    for name, points in reader.metrics(run_id).items() if run_id is not None else ():
        curves.setdefault(name, _curve_of_points(points))
    for name, found in events.look().items():
        curves.setdefault(name, [(float(point.step), point.value) for point in found if math.isfinite(point.value)])
    return {name: curve for name, curve in curves.items() if curve}


def read_running_step(run: RunFolder, name: str, reader: TrackingReader) -> dict[str, Any]:
    """What is newer than the step.json of a step that runs: what it has logged; empty before it starts."""
    state = read_json_file(run.step(name).state) or {}
    if state.get("started") is None or "trials" in state:  # a sweep's is its best trial's, which only the engine knows
        return {}
    folder = run.step(name)
    events = EventCurves(event_places(run.home, folder, state.get("key", "")))
    logged = read_logged_values(folder, state.get("mlflow_run_id"), reader, events)
    return {
        "metrics": metrics_document(logged.metrics),
        "params": dict(logged.params),
        "tags": dict(logged.tags),
        "child_runs": child_runs_document(logged.child_runs),
    }


def read_step_curves(run: RunFolder, name: str, reader: TrackingReader) -> dict[str, MetricCurve]:
    """All values of each metric of a step, or a sweep's best trial, as far as it is known; NaN left out.

    The logs of what was reused, and of a best trial, are a link to those of the step that was executed.
    """
    return read_executed_curves(run.home, StepFolder(run.step(name).logs.resolve().parent), reader)


def read_executed_curves(home: RunsHome, executed: StepFolder, reader: TrackingReader) -> dict[str, MetricCurve]:
    """As ``read_step_curves``, from the folder in which a step or trial is or was executed."""
    told = read_json_file(executed.state) or {}
    events = EventCurves(event_places(home, executed, told.get("key", "")))
    return read_metric_curves(executed, told.get("mlflow_run_id"), reader, events)


def _redacted(pairs: Mapping[str, str]) -> dict[str, str]:
    return {name: redact_named(name, value) for name, value in sorted(pairs.items())}


def _curves_of_file(folder: StepFolder) -> dict[str, MetricCurve]:
    curves: dict[str, MetricCurve] = {}
    for entry in read_metrics(folder.metrics()):
        for name, value in entry.metrics.items():
            curve = curves.setdefault(name, [])
            if isinstance(entry.step, int | float) and abs(entry.step) <= _MOST_STEPS and math.isfinite(value):
                curve.append((float(entry.step), float(value)))
    return curves


def _curve_of_points(points: Sequence[MetricPoint]) -> MetricCurve:
    """The values by step; a script that gives no step has 0 for all, and then they are counted from 1."""
    uncounted = len(points) > 1 and len({point.step for point in points}) == 1
    numbered = (
        enumerate((point.value for point in points), start=1) if uncounted else ((p.step, p.value) for p in points)
    )
    return sorted(
        ((float(step), value) for step, value in numbered if math.isfinite(value)), key=lambda point: point[0]
    )

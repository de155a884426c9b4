"""What a step has logged, wherever: rank 0's ``outputs/metrics.jsonl``, its MLflow run, event files for TensorBoard.

Each metric is shown once, from the first of these that has it: our components log every metric to the first two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from allranks.local.event_files import EventPoint
from allranks.local.event_folders import EventCurves, event_places
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.metrics_file import MetricsFollower, metrics_document
from allranks.local.record_shapes import read_json_file
from allranks.local.result import ProgressLook, StepProgress
from allranks.local.tracking.reading import ChildRun, MetricPoint, TrackingReader, child_runs_document
from allranks.redaction import redact, redact_named

MetricCurve = list[tuple[float, float]]
"""The values of one metric by step, in the order of logging; none is NaN or infinite."""

_MOST_STEPS = 2**63  # JSON's whole numbers have no end, and those of MLflow and TensorBoard end here
_OWN_TAGS = "mlflow."  # MLflow notes there who started a run and from where
_MOST_FOLLOWED = 256  # steps and trials of which what was read is kept


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


class LoggedFiles:
    """The files that a step logs to; what was read once is not read again. Several threads may look.

    Args:
        folder: of the step in the run that executed it.
        places: where its event files are looked for.
    """

    def __init__(self, folder: StepFolder, places: Sequence[Path] = ()) -> None:
        self.places = tuple(places)
        self._lock = Lock()
        self._progress = ProgressLook(folder.metrics())
        self._follower = MetricsFollower(folder.metrics())
        self._curves: dict[str, MetricCurve] = {}
        self._events = EventCurves(places)

    def read_progress(self) -> StepProgress:
        """What metrics.jsonl says of the progress and the last values."""
        with self._lock:
            return self._progress.look()

    def read_curves(self) -> dict[str, MetricCurve]:
        """The curves in metrics.jsonl, which are the caller's own; one is empty where no value can be drawn."""
        with self._lock:
            entries, is_anew = self._follower.read_new()
            if is_anew:
                self._curves = {}
            for entry in entries:
                at = entry.step
                is_placed = isinstance(at, int | float) and abs(at) <= _MOST_STEPS
                step = float(at) if is_placed else 0.0
                for name, value in entry.metrics.items():
                    curve = self._curves.setdefault(name, [])
                    if is_placed and math.isfinite(value):
                        curve.append((step, float(value)))
            return {name: curve.copy() for name, curve in self._curves.items()}

    def read_events(self) -> Mapping[str, Sequence[EventPoint]]:
        """The curves of its event files."""
        with self._lock:
            return self._events.look()


class FollowedFiles:
    """The files of the steps that somebody looks at again and again, such as a page that is served."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: dict[StepFolder, LoggedFiles] = {}

    def of(self, folder: StepFolder, places: Sequence[Path]) -> LoggedFiles:
        """Those of a step; of too many steps those that were not looked at for longest are forgotten."""
        with self._lock:
            known = self._files.pop(folder, None)
            files = known if known is not None and known.places == tuple(places) else LoggedFiles(folder, places)
            if len(self._files) >= _MOST_FOLLOWED:
                self._files.pop(next(iter(self._files)))
            self._files[folder] = files
            return files


def read_logged_values(files: LoggedFiles, run_id: str | None, reader: TrackingReader) -> LoggedValues:
    """Read the last values; it costs what is new in its files, and in MLflow a row for each name.

    Args:
        files: of the step.
        run_id: its MLflow run; None if it has none.
        reader: of the runs folder that both are in.
    """
    metrics = dict(files.read_progress().metrics)
    for name, value in reader.latest(run_id).items() if run_id is not None else ():
        metrics.setdefault(name, value)
    for name, points in files.read_events().items():
        metrics.setdefault(name, points[-1].value)
    if run_id is None:
        return LoggedValues(metrics)
    params, tags = (_redacted(reader.pairs(table, run_id)) for table in ("params", "tags"))
    shown = {name: tag for name, tag in tags.items() if not name.startswith(_OWN_TAGS)}
    children = tuple(
        replace(child, name=redact(child.name), params=_redacted(child.params)) for child in reader.made_by(run_id)
    )
    return LoggedValues(metrics, params, shown, children)


def read_metric_curves(files: LoggedFiles, run_id: str | None, reader: TrackingReader) -> dict[str, MetricCurve]:
    """Read all values of each metric; the arguments are those of ``read_logged_values``."""
    curves = files.read_curves()
    if run_id is not None and not reader.latest(run_id).keys() <= curves.keys():
        for name, points in reader.metrics(run_id).items():
            curves.setdefault(name, _curve_of_points(points))
    for name, found in files.read_events().items():
        curves.setdefault(name, [(float(point.step), point.value) for point in found if math.isfinite(point.value)])
    return {name: curve for name, curve in curves.items() if curve}


def read_running_step(
    run: RunFolder, name: str, reader: TrackingReader, followed: FollowedFiles | None = None
) -> dict[str, Any]:
    """What is newer than the step.json of a step that runs: what it has logged; empty before it starts."""
    state = read_json_file(run.step(name).state) or {}
    if state.get("started") is None or "trials" in state:  # a sweep's is its best trial's, which only the engine knows
        return {}
    files = _files_of(run.home, run.step(name), state, followed)
    logged = read_logged_values(files, state.get("mlflow_run_id"), reader)
    return {
        "metrics": metrics_document(logged.metrics),
        "params": dict(logged.params),
        "tags": dict(logged.tags),
        "child_runs": child_runs_document(logged.child_runs),
    }


def read_step_curves(
    run: RunFolder, name: str, reader: TrackingReader, followed: FollowedFiles | None = None
) -> dict[str, MetricCurve]:
    """All values of each metric of a step, or a sweep's best trial, as far as it is known; NaN left out.

    The logs of what was reused, and of a best trial, are a link to those of the step that was executed. Who looks again
    and again gives ``followed``, where what was read is kept; event files are then looked for every two seconds.
    """
    return read_executed_curves(run.home, run.executed(name), reader, followed)


def read_executed_curves(
    home: RunsHome, executed: StepFolder, reader: TrackingReader, followed: FollowedFiles | None = None
) -> dict[str, MetricCurve]:
    """As ``read_step_curves``, from the folder in which a step or trial is or was executed."""
    told = read_json_file(executed.state) or {}
    return read_metric_curves(_files_of(home, executed, told, followed), told.get("mlflow_run_id"), reader)


def _files_of(
    home: RunsHome, executed: StepFolder, told: Mapping[str, Any], followed: FollowedFiles | None
) -> LoggedFiles:
    places = event_places(home, executed, told.get("key", ""))
    return LoggedFiles(executed, places) if followed is None else followed.of(executed, places)


def _redacted(pairs: Mapping[str, str]) -> dict[str, str]:
    return {name: redact_named(name, value) for name, value in sorted(pairs.items())}


def _curve_of_points(points: Sequence[MetricPoint]) -> MetricCurve:
    """The values by step; a script that gives no step has 0 for all, and then they are counted from 1."""
    uncounted = len(points) > 1 and len({point.step for point in points}) == 1
    numbered = (
        enumerate((point.value for point in points), start=1) if uncounted else ((p.step, p.value) for p in points)
    )
    return sorted(
        ((float(step), value) for step, value in numbered if math.isfinite(value)), key=lambda point: point[0]
    )

"""The one document of a run: what its page shows, and what `runs show --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.local.curves import thin_curve
from allranks.local.folders import RunFolder
from allranks.local.logged import FollowedFiles, MetricCurve, read_executed_curves, read_step_curves
from allranks.local.record_shapes import read_json_file
from allranks.local.resources.summary import step_resources
from allranks.local.tracking.reading import TrackingReader

MOST_POINTS = 1000
"""Of one curve in a document; of more the lowest and the highest of each stretch."""

_MOST_TRIALS, _TRIAL_POINTS = 100, 200  # of which the curves are told, and of each of these
_DETAILS = ("command", "inputs", "input_sources", "data", "variables", "environment", "python", "snapshot_hash", "code")
_OWN_DETAILS = ("attempt_times", "key")  # not those of the run that a reused step was executed in


def run_document(
    run: RunFolder,
    state: Mapping[str, Any],
    reader: TrackingReader | None = None,
    followed: FollowedFiles | None = None,
) -> dict[str, Any]:
    """A run's document with each step's curves, ``[step, value]`` each, what it used, and ``details`` of its start.

    Args:
        run: its folder.
        state: what run.json says, or would say now.
        reader: of the runs folder; a new one if None.
        followed: where what was read is kept, for who looks again and again.
    """
    if reader is None:
        with TrackingReader(run.home) as opened:
            return run_document(run, state, opened, followed)
    steps = {name: _step(run, name, step, reader, followed) for name, step in state["steps"].items()}
    return {**state, "steps": steps}


def page_document(run: RunFolder) -> Path:
    """Where a run's document is kept once the run has ended."""
    return run.report.with_name("page.json")


def kept_document(run: RunFolder) -> dict[str, Any] | None:
    """The document of a run that has ended, if it was kept and nothing has come later."""
    try:
        if page_document(run).stat().st_mtime_ns < run.state.stat().st_mtime_ns:
            return None
    except OSError:
        return None
    found = read_json_file(page_document(run))
    return found if isinstance(found, dict) else None


def ended_document(run: RunFolder, state: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a run that has just ended, with what was read of its steps for its page: none is read twice."""
    kept = kept_document(run)
    return run_document(run, state) if kept is None else {**state, "steps": kept["steps"]}


def curves_of_steps(run: RunFolder, state: Mapping[str, Any]) -> dict[str, dict[str, MetricCurve]]:
    """The curves of each step's metrics, whole, by step; ``state`` is the run's document."""
    with TrackingReader(run.home) as reader:
        return {name: read_step_curves(run, name, reader) for name in state["steps"]}


def _step(
    run: RunFolder, name: str, step: Mapping[str, Any], reader: TrackingReader, followed: FollowedFiles | None
) -> dict[str, Any]:
    """A step with what only its own files say; nothing is added for what these do not have."""
    curves = read_step_curves(run, name, reader, followed)
    thinned = {metric: thin_curve(points, MOST_POINTS) for metric, points in curves.items()}
    trials = _trial_curves(run, name, step, reader, followed)
    resources, over_time = step_resources(run, name)
    details = read_step_details(run, name) | ({"resources": over_time} if over_time else {})
    return {
        **{key: value for key, value in step.items() if key not in (*_DETAILS, *_OWN_DETAILS)},
        **({"curves": thinned} if thinned else {}),
        **({"trial_curves": trials} if trials else {}),
        **({"resources": resources} if resources else {}),
        **({"details": details} if details else {}),
    }


def read_step_details(run: RunFolder, name: str) -> dict[str, Any]:
    """How a step was started; a reused one when it was executed."""
    own = read_json_file(run.step(name).state) or {}
    executed = run.executed(name)
    kept = own if own.get("variables") else read_json_file(executed.state) or own
    found = {key: kept[key] for key in _DETAILS if kept.get(key)}
    found |= {key: own[key] for key in _OWN_DETAILS if own.get(key)}
    for key in ("inputs", "input_sources"):
        if own.get(key):
            found[key] = own[key]
    return found


def _trial_curves(
    run: RunFolder, name: str, step: Mapping[str, Any], reader: TrackingReader, followed: FollowedFiles | None
) -> dict[str, MetricCurve]:
    """The primary metric's curve of each trial of a sweep, by number; none for other steps."""
    found = {}
    for trial in step.get("trials", ())[:_MOST_TRIALS]:
        curves = read_executed_curves(
            run.home, run.executed(f"{name}.{trial['number']}", trial["folder"]), reader, followed
        )
        points = curves.get(step["primary_metric"], [])
        if len(points) > 1:
            found[str(trial["number"])] = thin_curve(points, _TRIAL_POINTS)
    return found

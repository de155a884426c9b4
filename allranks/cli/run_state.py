"""A run of this folder as its files tell it: its state, its steps, the trials of its sweeps, and their logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.cli.log_stream import rank_logs
from allranks.local.curves import thin_curve
from allranks.local.folders import RunFolder, RunsHome, StepFolder, read_json_file
from allranks.local.logged import MetricCurve, read_running_step, read_step_curves
from allranks.local.result import CANCELLED, FAILED, NOT_TAKEN, RETRYING, RUNNING, SKIPPED, SUCCEEDED
from allranks.local.tracking.reading import TrackingReader

FINISHED_STATUSES = (SUCCEEDED, FAILED, SKIPPED, NOT_TAKEN, CANCELLED)
_MOST_POINTS = 400  # of one curve in a document, as on the page
_RUNNING = (RUNNING, RETRYING)  # what has logged since its step.json was written


def read_run_state(folder: RunFolder) -> dict[str, Any]:
    """The run's document; a run whose engine is gone before its end is ``cancelled``, not ``running``."""
    state: dict[str, Any] = read_json_file(folder.state) or {"run_id": folder.id, "status": "unknown", "steps": {}}
    if state["status"] == RUNNING:  # run.json is written when a run begins and when it ends, step.json in between
        steps = {name: {**s, **(read_json_file(folder.step(name).state) or {})} for name, s in state["steps"].items()}
        with TrackingReader(folder.home) as reader:
            state["steps"] = steps = {
                name: {**step, **read_running_step(folder, name, reader)} if step["status"] in _RUNNING else step
                for name, step in steps.items()
            }
        if not folder.alive:
            for one in (state, *steps.values()):
                if one["status"] not in FINISHED_STATUSES:
                    one["status"] = CANCELLED
    return state


def curves_of_steps(folder: RunFolder, state: Mapping[str, Any]) -> dict[str, dict[str, MetricCurve]]:
    """The curves of each step's metrics, by step; ``state`` is the run's document."""
    with TrackingReader(folder.home) as reader:
        return {name: read_step_curves(folder, name, reader) for name in state["steps"]}


def with_curves(folder: RunFolder, state: Mapping[str, Any]) -> dict[str, Any]:
    """A run's document with the curves of its steps, ``[step, value]`` each; of many points every so manieth."""
    steps = dict(state["steps"])
    for name, curves in curves_of_steps(folder, state).items():
        if curves:
            thinned = {metric: thin_curve(points, _MOST_POINTS) for metric, points in curves.items()}
            steps[name] = {**steps[name], "curves": thinned}
    return {**state, "steps": steps}


def steps_and_trials(folder: RunFolder) -> dict[str, Any]:
    """What has logs: the steps, and the trials of sweeps as SWEEP.NUMBER."""
    found = dict(read_run_state(folder)["steps"])
    for name, step in list(found.items()):
        for trial in (read_json_file(folder.step(name).state) or step).get("trials", ()):
            found[f"{name}.{trial['number']}"] = trial
    return found


def reused_runs(state: Mapping[str, Any]) -> set[str]:
    """The runs whose outputs a run reuses."""
    steps = state["steps"].values()
    trials = [trial for step in steps for trial in step.get("trials", ())]
    return {one.get("reused_from") for one in (*steps, *trials)} - {None}


def step_with_logs(home: RunsHome, folder: RunFolder, name: str, step: Mapping[str, Any]) -> StepFolder:
    """The step's folder, or for a reused step that of the run in which it really ran."""
    own = folder.step(name)
    earlier = step.get("reused_from")
    return own if own.logs.is_dir() or not earlier else home.run(earlier).step(name)


def logs_by_rank(step: StepFolder) -> dict[int, Path]:
    """The logs that there are, by rank."""
    return rank_logs(step.logs)

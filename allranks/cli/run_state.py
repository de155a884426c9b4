"""A run of this folder as its files tell it: its state, its steps, the trials of its sweeps, and their logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.cli.log_stream import rank_logs
from allranks.local.folders import RunFolder, RunsHome, StepFolder, read_json_file
from allranks.local.logged import FollowedFiles, read_running_step
from allranks.local.result import CANCELLED, FAILED, NOT_TAKEN, RETRYING, RUNNING, SKIPPED, SUCCEEDED
from allranks.local.tracking.reading import TrackingReader

FINISHED_STATUSES = (SUCCEEDED, FAILED, SKIPPED, NOT_TAKEN, CANCELLED)
_RUNNING = (RUNNING, RETRYING)  # what has logged since its step.json was written


def read_run_state(folder: RunFolder, followed: FollowedFiles | None = None) -> dict[str, Any]:
    """The run's document; a run whose engine is gone before its end is ``cancelled``, not ``running``.

    Who looks again and again gives ``followed``, where what its steps have logged is kept.
    """
    state: dict[str, Any] = read_json_file(folder.state) or {"run_id": folder.id, "status": "unknown", "steps": {}}
    if state["status"] == RUNNING:  # run.json is written when a run begins and when it ends, step.json in between
        steps = {name: {**s, **(read_json_file(folder.step(name).state) or {})} for name, s in state["steps"].items()}
        with TrackingReader(folder.home) as reader:
            state["steps"] = steps = {
                name: {**step, **read_running_step(folder, name, reader, followed)}
                if step["status"] in _RUNNING
                else step
                for name, step in steps.items()
            }
        if folder.alive:
            _count_time(state, steps)
        else:
            for one in (state, *steps.values()):
                if one["status"] not in FINISHED_STATUSES:
                    one["status"] = CANCELLED
    return state


def _count_time(state: Mapping[str, Any], steps: Mapping[str, dict[str, Any]]) -> None:
    """The seconds of what runs, which its step.json tells as they were when that was written."""
    since = time.time() - (state.get("started") or time.time())
    for step in steps.values():
        if step["status"] in _RUNNING and step.get("started") is not None:
            step["seconds"] = round(max(step["seconds"], since - step["started"]), 3)


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

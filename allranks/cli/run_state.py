"""A run of this folder as its files tell it: its state, its steps, the trials of its sweeps, and their logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from allranks.cli.log_stream import rank_logs
from allranks.local.folders import RunFolder, RunsHome, StepFolder
from allranks.local.logged import FollowedFiles, read_running_step
from allranks.local.record_shapes import find_record_fault, read_json_file
from allranks.local.result import CANCELLED, FAILED, NOT_TAKEN, RETRYING, RUNNING, SKIPPED, SUCCEEDED
from allranks.local.tracking.reading import TrackingReader

FINISHED_STATUSES = (SUCCEEDED, FAILED, SKIPPED, NOT_TAKEN, CANCELLED)
KILLED = "its engine was killed, or this machine went down, before the run had ended"
"""Of a run that nobody has ended: what the document of such a run says as its ``message``."""

_RUNNING = (RUNNING, RETRYING)  # what has logged since its step.json was written


def read_run_state(folder: RunFolder, followed: FollowedFiles | None = None) -> dict[str, Any]:
    """The run's document; a run whose engine is gone before its end is ``cancelled``, not ``running``, and says why.

    Such a run, and what was running in it, has taken until the last of its files was written.
    Who looks again and again gives ``followed``, where what its steps have logged is kept.
    """
    state: dict[str, Any] | None = read_json_file(folder.state)
    if state is None:
        fault = find_record_fault(folder.state)
        state = {"run_id": folder.id, "status": "unknown", "steps": {}}
        return {**state, "message": f"{folder.state.name} {fault}"} if fault else state
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
            _end_killed(folder, state, steps)
    return state


def _end_killed(folder: RunFolder, state: dict[str, Any], steps: Mapping[str, dict[str, Any]]) -> None:
    """Complete what an engine that was killed has left."""
    began, ends = state.get("started"), [_last_sign(folder.state)]
    for name, step in steps.items():
        trials = [
            (trial, folder.executed(f"{name}.{trial['number']}", trial["folder"])) for trial in step.get("trials", ())
        ]
        signs = [_last_sign(*_signs(of)) for of in (folder.step(name), *(of for _, of in trials))]
        if step["status"] in _RUNNING and step.get("started") is not None and began is not None:
            step["seconds"] = round(max(step["seconds"], max(signs) - began - step["started"]), 3)
        for one in (step, *(trial for trial, _ in trials)):
            if one["status"] not in FINISHED_STATUSES:
                one["status"] = CANCELLED
        ends += signs
    state["status"], state["message"] = CANCELLED, KILLED
    if began is not None:
        state["ended"] = round(max(began, *ends), 3)


def _signs(step: StepFolder) -> Iterator[Path]:
    """What is written while a step runs."""
    yield from (step.state, step.resources, step.metrics())
    yield from rank_logs(step.logs).values()


def _last_sign(*files: Path) -> float:
    """When one of these files was written last, in seconds since 1970; 0 if none is there."""
    found = 0.0
    for file in files:
        with suppress(OSError):
            found = max(found, file.stat().st_mtime)
    return found


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

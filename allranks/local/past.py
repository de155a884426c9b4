"""A run that has been, as the result that it was."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.local.goodput import past_restarts
from allranks.local.metrics_file import read_metrics_document
from allranks.local.result import RunResult, StepFailure, StepResult, SweepResult, TrialResult
from allranks.local.tracking.reading import ChildRun

_AS_WRITTEN = ("status", "started", "seconds", "reused_from", "attempts", "nodes", "processes", "component")


def past_result(state: Mapping[str, Any]) -> RunResult:
    """The result that a run.json says; what an engine that was killed could not write is missing from it."""
    return RunResult(
        run_id=state["run_id"],
        status=state["status"],
        run_dir=Path(state.get("run_dir") or ""),
        steps={name: _step(name, step) for name, step in state["steps"].items()},
        outputs=_paths(state.get("outputs")),
        started=state.get("started"),
        ended=state.get("ended"),
    )


def _step(name: str, step: Mapping[str, Any]) -> StepResult:
    return StepResult(
        name=name,
        folder=Path(step["folder"]),
        outputs=_paths(step["outputs"]),
        failure=_failure(step["failure"]) if step["failure"] else None,
        after=tuple(step["after"]),
        sweep=past_sweep(step) if "trials" in step else None,
        parameters=step.get("parameters", {}),
        mlflow_run_id=step.get("mlflow_run_id"),
        decision=step.get("decision"),
        restarts=past_restarts(step),
        **past_logged(step),
        **{attribute: step[attribute] for attribute in _AS_WRITTEN},
    )


def past_logged(step: Mapping[str, Any]) -> dict[str, Any]:
    """What a step has logged that a step.json or run.json tells of."""
    metrics = read_metrics_document(step.get("metrics"))
    children = tuple(past_child(child) for child in step.get("child_runs", ()))
    return {
        "metrics": metrics,
        "params": step.get("params", {}),
        "tags": step.get("tags", {}),
        "child_runs": children,
    }


def past_child(document: Mapping[str, Any]) -> ChildRun:
    """A run that a step's script has made itself, as it was."""
    return ChildRun(**{**document, "metrics": read_metrics_document(document["metrics"])})


def _failure(failure: Mapping[str, Any]) -> StepFailure:
    log = Path(failure["log"]) if failure["log"] else None
    return StepFailure(**{**failure, "log": log, "last_lines": tuple(failure["last_lines"])})


def past_sweep(step: Mapping[str, Any]) -> SweepResult:
    """The trials of a sweep that a step.json or run.json tells of."""
    trials = tuple(TrialResult(**{**trial, "folder": Path(trial["folder"])}) for trial in step["trials"])
    return SweepResult(step["goal"], step["primary_metric"], step["max_total_trials"], trials, step["best_trial"])


def _paths(paths: Mapping[str, str] | None) -> dict[str, Path]:
    return {name: Path(path) for name, path in (paths or {}).items()}

"""One line on a run: its id, status, time, what was asked for, and what it has measured."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from allranks.cli.sparklines import SHOWN_METRICS
from allranks.local.metrics_file import read_metrics_document
from allranks.local.result import SUCCEEDED
from allranks.wording import duration_words, number_words, run_seconds


def run_cells(state: Mapping[str, Any]) -> list[str]:
    """Its id, status, steps that have succeeded, start, duration, what was asked for, what it has measured."""
    steps = state["steps"].values()
    done = sum(step["status"] == SUCCEEDED for step in steps)
    return [
        state["run_id"],
        state["status"],
        f"{done}/{len(steps)} steps",
        _when(state.get("started")),
        duration_words(run_seconds(state)),
        _asked(state),
        _measured(state["steps"]),
    ]


def _asked(state: Mapping[str, Any]) -> str:
    """The target with the values and the scale that were given: what tells one run from another."""
    values = [f"{name}={value}" for name, value in (state.get("values") or {}).items()]
    scale = [f"--scale {step}={nodes}x{each}" for step, (nodes, each) in (state.get("scale") or {}).items()]
    arguments = (state.get("script") or {}).get("arguments")
    return " ".join([str(state.get("target") or ""), *values, *scale, *(["--", *arguments] if arguments else [])])


def _measured(steps: Mapping[str, Any]) -> str:
    """The first of accuracy, validation accuracy and loss that a step has, for each step that has it."""
    measured = {name: read_metrics_document(step.get("metrics")) for name, step in steps.items()}
    for metric in SHOWN_METRICS:
        found = {name: metrics[metric] for name, metrics in measured.items() if metric in metrics}
        if found:
            return "  ".join(f"{name}.{metric}={number_words(value)}" for name, value in found.items())
    return ""


def _when(started: object) -> str:
    """A start time, in epoch seconds, as local date and time."""
    if not isinstance(started, int | float):
        return ""
    return f"{datetime.fromtimestamp(started, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"

"""One line on a run: its id, status, time, what was asked for, and what it has measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allranks.cli.sparklines import SHOWN_METRICS
from allranks.local.metrics_file import read_metrics_document
from allranks.local.result import RUNNING, SUCCEEDED
from allranks.wording import duration_words, number_words, run_seconds


@dataclass(frozen=True, slots=True)
class RunRow:
    """What a list needs of a run, which is little of its document: so a thousand of them fit into memory.

    Attributes:
        done: how many of its ``steps`` have succeeded.
        started, seconds: when it began, since 1970, and how long it took, or has run; None where that is not known.
        asked: the target with the values and the scale that were given.
        metrics: step, name and last value of each metric.
        words: what it is searched by, case folded.
    """

    run_id: str
    status: str
    done: int
    steps: int
    started: float | None
    seconds: float | None
    asked: str
    metrics: tuple[tuple[str, str, float], ...]
    words: str

    def find_metric(self, metric: str) -> list[tuple[str, str, float]]:
        """Step, name and last value of a metric, in each step that has it; ``metric`` is its name, or STEP.NAME."""
        return [one for one in self.metrics if metric in (one[1], f"{one[0]}.{one[1]}")]


def run_row(state: Mapping[str, Any]) -> RunRow:
    """The row of a run's document."""
    steps, started = state["steps"], state.get("started")
    metrics = tuple(
        (step, name, value)
        for step, told in steps.items()
        for name, value in read_metrics_document(told.get("metrics")).items()
    )
    asked = _asked(state)
    words = [state["run_id"], str(state.get("name") or ""), asked, *(f"{step}.{name}" for step, name, _ in metrics)]
    return RunRow(
        run_id=state["run_id"],
        status=state["status"],
        done=sum(step["status"] == SUCCEEDED for step in steps.values()),
        steps=len(steps),
        started=started if isinstance(started, int | float) else None,
        seconds=_seconds(state),
        asked=asked,
        metrics=metrics,
        words="\n".join(words).casefold(),
    )


def run_cells(row: RunRow, metric: str = "") -> list[str]:
    """Its id, status, steps that have succeeded, start, duration, what was asked for, what it has measured.

    Args:
        row: of the run.
        metric: what is shown of the measured; without one the first of accuracy, validation accuracy, loss and speed.
    """
    done = f"{row.done}/{row.steps} steps"
    measured = next(filter(None, (_measured(row, name) for name in ((metric,) if metric else SHOWN_METRICS))), "")
    return [row.run_id, row.status, done, _when(row.started), duration_words(row.seconds), row.asked, measured]


def _asked(state: Mapping[str, Any]) -> str:
    """The target with the values and the scale that were given: what tells one run from another."""
    values = [f"{name}={value}" for name, value in (state.get("values") or {}).items()]
    scale = [f"--scale {step}={nodes}x{each}" for step, (nodes, each) in (state.get("scale") or {}).items()]
    arguments = (state.get("script") or {}).get("arguments")
    return " ".join([str(state.get("target") or ""), *values, *scale, *(["--", *arguments] if arguments else [])])


def _seconds(state: Mapping[str, Any]) -> float | None:
    started = state.get("started")
    if state["status"] == RUNNING and isinstance(started, int | float):
        return max(0.0, time.time() - started)
    return run_seconds(state)


def _measured(row: RunRow, metric: str) -> str:
    """A metric, for each step that has it."""
    return "  ".join(f"{step}.{name}={number_words(value)}" for step, name, value in row.find_metric(metric))


def _when(started: float | None) -> str:
    """A start time, in epoch seconds, as local date and time."""
    return "" if started is None else f"{datetime.fromtimestamp(started, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"

"""The end of a run for people: the measures, where everything is, and what went wrong."""

from __future__ import annotations

import sys
from pathlib import Path

from allranks.cli.live_table import best_trial
from allranks.cli.text import aligned_rows, duration_words, with_count
from allranks.local.result import SUCCEEDED, RunResult, StepResult

_MEASURES = ("accuracy", "bits_per_byte")
"""What an evaluation is judged by, and the last lines of a run repeat."""


def print_summary(result: RunResult) -> None:
    """The end of a run for people: the measures, where everything is, and what went wrong."""
    if result.explanation:
        print(result.explanation, file=sys.stderr)
    took = sum(1 for step in result.steps.values() if step.reused_from)
    total = max((s.started + s.seconds for s in result.steps.values() if s.started is not None), default=0.0)
    print(
        f"{result.status} in {duration_words(total)}"
        + (f", {took} of {len(result.steps)} steps reused" if took else "")
    )
    lines = [
        (f"{step.name}.{name}", f"{value:.4f}") for step in result.steps.values() for name, value in _measures(step)
    ]
    lines += [
        (f"{step.name}.{step.sweep.metric}", f"{step.metrics[step.sweep.metric]:.4f}, {best_trial(step.sweep)}")
        for step in result.steps.values()
        if step.sweep is not None and step.sweep.metric in step.metrics
    ]
    for step in result.steps.values():
        if step.nodes * step.processes > 1:
            ranks = step.nodes * step.processes
            lines.append((f"{step.name} ran on", f"{ranks} ranks, {with_count(step.nodes, 'node')} x {step.processes}"))
    lines += [(name, str(_page(path))) for name, path in result.outputs.items()]
    lines += [("logs", f"{result.run_dir}/steps/*/user_logs"), ("page of the run", str(result.run_dir / "report.html"))]
    if result.status != SUCCEEDED:
        lines.append(("to go on", f"allranks run --resume {result.run_id}{result.elsewhere}"))
    print(aligned_rows(lines, keep_whole=True))


def _measures(step: StepResult) -> list[tuple[str, float]]:
    primary = step.sweep.metric if step.sweep else ""  # shown with its trial
    return [(name, step.metrics[name]) for name in _MEASURES if name in step.metrics and name != primary]


def _page(path: Path) -> Path:
    """A report's page rather than its folder, since that is what a person opens."""
    return path / "index.html" if (path / "index.html").is_file() else path

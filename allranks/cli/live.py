"""What a person sees while a pipeline runs: a live table on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allranks.cli.live_table import best_trial, shorter_metrics, shown_parameters, status_table
from allranks.cli.text import duration_words, with_count
from allranks.local.result import RETRYING, RUNNING, StepResult
from allranks.redaction import redact

if TYPE_CHECKING:
    from rich.live import Live

    from allranks.local.execution import StepExecution
    from allranks.local.folders import RunFolder
    from allranks.local.plan import RunPlan

_REFRESH = 0.25  # seconds


class SilentObserver:
    """Shows nothing: the one JSON document comes at the end."""

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """The run begins."""

    def changed(self, step: StepResult) -> None:
        """A step has another status."""

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Time has passed."""


class LineObserver(SilentObserver):
    """One line for each change, for logs and pipes."""

    def started(self, run: RunFolder, plan: RunPlan) -> None:
        """Name the run and its folder."""
        print(f"run {run.id}: {with_count(len(plan.steps), 'step')}, in {run.path}", flush=True)

    def changed(self, step: StepResult) -> None:
        """Print what became of the step."""
        print(redact(f"  {step.name}: {_described(step)}"), flush=True)


class LiveTable(SilentObserver):
    """A table of all steps, drawn again a few times a second by the engine's own loop: no thread is started."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._results: dict[str, StepResult] = {}
        self._drawn = 0.0

    def started(self, run: RunFolder, plan: RunPlan) -> None:  # noqa: ARG002 the table knows the steps
        """Open the table."""
        from rich.live import Live

        print(f"run {run.id} in {run.path}", flush=True)
        self._live = Live(auto_refresh=False, transient=True)
        self._live.start()

    def changed(self, step: StepResult) -> None:
        """Keep a line for every step that has ended above the table."""
        self._results[step.name] = step
        self._drawn = 0.0

    def tick(self, steps: Mapping[str, StepExecution]) -> None:
        """Draw the table, unless it was drawn a moment ago."""
        if self._live is not None and time.monotonic() - self._drawn >= _REFRESH:
            self._drawn = time.monotonic()
            results = [execution.result() for execution in steps.values()]
            self._live.update(status_table(results, self._live.console.width), refresh=True)

    def close(self) -> None:
        """Take the table away, and leave one line for each step in its place."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        for step in self._results.values():
            print(redact(f"  {step.name}: {_described(step)}"))


def _described(step: StepResult) -> str:
    """One line on a step: status, ranks, time, what it measured."""
    where = f"{step.nodes} x {step.processes}" if step.nodes * step.processes > 1 else ""
    if step.status == RUNNING:
        values = f" with {shown_parameters(step.parameters)}" if step.parameters else ""
        return f"running on {where} ranks{values}" if where else f"running{values}"
    if step.status == RETRYING:
        return f"attempt {step.attempts} failed ({step.failure.message if step.failure else ''}), trying again"
    if step.reused_from:
        return f"reused from {step.reused_from}" + _tail(shorter_metrics(step.metrics)[0])
    took = duration_words(step.seconds) if step.started is not None else ""
    if step.aborts_at_exit:
        took += f", attempt repeated {step.aborts_at_exit} times: a rank was killed by SIGABRT while Python ended"
    found = step.status + _tail(took) + _tail(shorter_metrics(step.metrics)[0]) + _tail(best_trial(step.sweep))
    why = step.failure.message if step.failure and step.parameters else ""  # a step's is told at the end
    return found + (f": {why}" if why else "")


def _tail(text: str) -> str:
    return f", {text}" if text else ""


def choose_observer(*, as_json: bool) -> SilentObserver:
    """The way to show a run that fits the output."""
    if as_json:
        return SilentObserver()
    return LiveTable() if sys.stdout.isatty() else LineObserver()

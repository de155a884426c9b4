"""What a person sees while a pipeline runs: a live table on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allranks.cli.text import NARROW, counted, seconds
from allranks.local.folders import StepFolder
from allranks.local.result import (
    CANCELLED,
    FAILED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    WAITING,
    Progress,
    StepResult,
    SweepResult,
    read_progress,
)

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    from allranks.local.execution import Execution
    from allranks.local.folders import RunFolder
    from allranks.local.plan import Plan

SHOWN_METRICS = ("accuracy", "validation_accuracy", "loss", "samples_per_second")
STYLES = {SUCCEEDED: "green", FAILED: "bold red", RUNNING: "cyan", RETRYING: "yellow", WAITING: "dim"}
REFRESH = 0.25  # seconds
COLUMNS = ("step", "status", "nodes x ranks", "time", "progress", "metrics")
IN_NARROW = ("step", "status", "time", "progress")  # all that fits into a terminal of fewer than NARROW columns


class Silent:
    """Shows nothing: the one JSON document comes at the end."""

    def started(self, run: RunFolder, plan: Plan) -> None:
        """The run begins."""

    def changed(self, step: StepResult) -> None:
        """A step has another status."""

    def tick(self, steps: Mapping[str, Execution]) -> None:
        """Time has passed."""


class Lines(Silent):
    """One line for each change, for logs and pipes."""

    def started(self, run: RunFolder, plan: Plan) -> None:
        """Name the run and its folder."""
        print(f"run {run.id}: {counted(len(plan.steps), 'step')}, in {run.path}", flush=True)

    def changed(self, step: StepResult) -> None:
        """Print what became of the step."""
        print(f"  {step.name}: {describe(step)}", flush=True)


class LiveTable(Silent):
    """A table of all steps, drawn again a few times a second by the engine's own loop: no thread is started."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._results: dict[str, StepResult] = {}
        self._drawn = 0.0

    def started(self, run: RunFolder, plan: Plan) -> None:  # noqa: ARG002 the table knows the steps
        """Open the table."""
        from rich.live import Live

        print(f"run {run.id} in {run.path}", flush=True)
        self._live = Live(auto_refresh=False, transient=True)
        self._live.start()

    def changed(self, step: StepResult) -> None:
        """Keep a line for every step that has ended above the table."""
        self._results[step.name] = step
        self._drawn = 0.0

    def tick(self, steps: Mapping[str, Execution]) -> None:
        """Draw the table, unless it was drawn a moment ago."""
        if self._live is not None and time.monotonic() - self._drawn >= REFRESH:
            self._drawn = time.monotonic()
            results = [execution.result() for execution in steps.values()]
            self._live.update(_table(results, self._live.console.width), refresh=True)

    def close(self) -> None:
        """Take the table away, and leave one line for each step in its place."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        for step in self._results.values():
            print(f"  {step.name}: {describe(step)}")


def _table(steps: list[StepResult], width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in COLUMNS if width >= NARROW else IN_NARROW:
        table.add_column(title, no_wrap=True)
    for step in steps:
        progress = read_progress(step.folder / "nodes" / "0" / "work" / "outputs" / "metrics.jsonl", tail=True)
        _add_row(
            table,
            step.name,
            Text(step.status + (" (reused)" if step.reused_from else ""), style=STYLES.get(step.status, "")),
            f"{step.nodes} x {step.processes}",
            seconds(step.seconds) if step.started is not None else "",
            _bar(progress) if step.status == RUNNING else "",
            _metrics(dict(progress.metrics) or dict(step.metrics)),
        )
        if step.sweep is not None and step.status == RUNNING:
            _add_trials(table, step.name, step.sweep)
    return table


def _add_row(table: Table, *cells: str | Text) -> None:
    """A row of all COLUMNS, of which the table takes those that it has."""
    had = {column.header for column in table.columns}
    table.add_row(*(cell for title, cell in zip(COLUMNS, cells, strict=True) if title in had))


def _add_trials(table: Table, name: str, sweep: SweepResult) -> None:
    """A row for each running trial, below one that counts them."""
    over = sum(trial.status in {SUCCEEDED, FAILED, CANCELLED} for trial in sweep.trials)
    _add_row(table, "", f"{over} of {sweep.most} trials", "", "", "", best_trial(sweep))
    for trial in sweep.trials:
        if trial.status == RUNNING:
            progress = read_progress(StepFolder(trial.folder).metrics(), tail=True)
            known = "" if trial.metric is None else f"  {sweep.metric} {trial.metric:.4g}"
            shown = shown_parameters(trial.parameters) + known
            _add_row(table, f"  {name}.{trial.number}", trial.status, "", seconds(trial.seconds), _bar(progress), shown)


def _bar(progress: Progress, width: int = 16) -> str:
    if progress.step is None or not progress.total:
        return ""
    share = min(1.0, progress.step / progress.total)
    full = round(share * width)
    return f"{'█' * full}{'░' * (width - full)} {share:4.0%}"


def _metrics(metrics: Mapping[str, float]) -> str:
    chosen = [name for name in SHOWN_METRICS if name in metrics] or list(metrics)[:3]
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in chosen[:3])


def describe(step: StepResult) -> str:
    """One line on a step: status, ranks, time, what it measured."""
    where = f"{step.nodes} x {step.processes}" if step.nodes * step.processes > 1 else ""
    if step.status == RUNNING:
        values = f" with {shown_parameters(step.parameters)}" if step.parameters else ""
        return f"running on {where} ranks{values}" if where else f"running{values}"
    if step.status == RETRYING:
        return f"attempt {step.attempts} failed ({step.failure.message if step.failure else ''}), trying again"
    if step.reused_from:
        return f"reused from {step.reused_from}" + _tail(_metrics(step.metrics))
    took = seconds(step.seconds) if step.started is not None else ""
    if step.aborts_at_exit:
        took += f", attempt repeated {step.aborts_at_exit} times: a rank was killed by SIGABRT while Python ended"
    found = step.status + _tail(took) + _tail(_metrics(step.metrics)) + _tail(best_trial(step.sweep))
    why = step.failure.message if step.failure and step.parameters else ""  # a step's is told at the end
    return found + (f": {why}" if why else "")


def best_trial(sweep: SweepResult | None) -> str:
    """``best of 8 trials: 5 (learning_rate=0.01)``; empty without one."""
    if sweep is None or sweep.best is None:
        return ""
    best = sweep.trials[sweep.best]
    return f"best of {len(sweep.trials)} trials: {best.number} ({shown_parameters(best.parameters)})"


def shown_parameters(parameters: Mapping[str, str | int | float | bool]) -> str:
    """A trial's values for people, numbers shortened: ``learning_rate=0.01, optimizer=sgd``."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in parameters.items()
    )


def _tail(text: str) -> str:
    return f", {text}" if text else ""


def observer(*, as_json: bool) -> Silent:
    """The way to show a run that fits the output."""
    if as_json:
        return Silent()
    return LiveTable() if sys.stdout.isatty() else Lines()

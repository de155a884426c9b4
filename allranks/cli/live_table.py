"""The table of a run that goes on, fitted to the terminal: names and times always stay, the rest gives way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allranks.cli.text import NARROW_WIDTH, duration_words
from allranks.local.folders import StepFolder
from allranks.local.result import (
    CANCELLED,
    FAILED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    WAITING,
    StepProgress,
    StepResult,
    SweepResult,
    read_progress,
)
from allranks.redaction import redact_named

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_METRICS = ("accuracy", "validation_accuracy", "loss", "samples_per_second")
STATUS_STYLES = {SUCCEEDED: "green", FAILED: "bold red", RUNNING: "cyan", RETRYING: "yellow", WAITING: "dim"}
_COLUMNS = ("step", "status", "nodes x ranks", "time", "progress", "metrics")
_IN_NARROW = ("step", "status", "time", "progress")  # all that fits into a terminal of fewer than NARROW_WIDTH columns
_GAP = 2  # between two columns
_BARS = (16, 6)  # of progress; the shorter where there is no room for the longer
_LEAST = 12  # characters of metrics that are worth a column


@dataclass(frozen=True, slots=True)
class _TableLine:
    """One line of the table; its metrics are ways to say what was measured, the fullest first."""

    step: str
    status: str
    ranks: str = ""
    time: str = ""
    progress: StepProgress | None = None
    metrics: Sequence[str] = ("",)
    style: str = ""

    def cells(self, bar: int, room: int) -> dict[str, str]:
        """What each column holds, with a bar of so many characters and room for so many of metrics."""
        metrics = next((text for text in self.metrics if len(text) <= room), self.metrics[-1])
        if len(metrics) > room:
            metrics = metrics[: max(0, room - 1)] + "…"
        progress = "" if self.progress is None else _bar(self.progress, bar)
        return dict(zip(_COLUMNS, (self.step, self.status, self.ranks, self.time, progress, metrics), strict=True))


def status_table(steps: Sequence[StepResult], width: int) -> Table:
    """The table of all steps and of the running trials of sweeps, in so many columns."""
    from rich.table import Table
    from rich.text import Text

    lines = [line for step in steps for line in _lines(step)]
    shown, bar, room = _fit(lines, width)
    table = Table(box=None, pad_edge=False)
    for title in shown:
        table.add_column(title, no_wrap=True)
    for line in lines:
        cells = line.cells(bar, room)
        table.add_row(*(Text(cells[title], style=line.style if title == "status" else "") for title in shown))
    return table


def _fit(lines: Sequence[_TableLine], width: int) -> tuple[list[str], int, int]:
    """The columns, the length of the bars and the room for metrics: the first choice that has room for all."""
    if width < NARROW_WIDTH:
        return list(_IN_NARROW), _BARS[0], 0
    wanted = max((len(line.metrics[0]) for line in lines), default=0)
    without_ranks = [title for title in _COLUMNS if title != "nodes x ranks"]
    choices = [(list(_COLUMNS), _BARS[0]), (without_ranks, _BARS[0]), (without_ranks, _BARS[1])]
    for shown, bar in choices:
        room = _room(lines, shown, bar, width)
        if room >= wanted:
            return shown, bar, room
    return ([title for title in shown if title != "metrics"], bar, 0) if room < _LEAST else (shown, bar, room)


def _room(lines: Sequence[_TableLine], shown: Sequence[str], bar: int, width: int) -> int:
    """The characters that the other columns leave for the metrics."""
    filled = [line.cells(bar, 0) for line in lines]
    taken = [max([len(title), *(len(cells[title]) for cells in filled)]) for title in shown if title != "metrics"]
    return width - sum(taken) - _GAP * len(taken)


def _lines(step: StepResult) -> list[_TableLine]:
    progress = read_progress(StepFolder(step.folder).metrics(), tail=True)
    line = _TableLine(
        step.name,
        step.status + (" (reused)" if step.reused_from else ""),
        f"{step.nodes} x {step.processes}" if step.nodes else "",
        duration_words(step.seconds) if step.started is not None else "",
        progress if step.status == RUNNING else None,
        _measured(step, progress),
        STATUS_STYLES.get(step.status, ""),
    )
    return [line, *(_trials(step.name, step.sweep) if step.sweep is not None and step.status == RUNNING else ())]


def _measured(step: StepResult, progress: StepProgress) -> tuple[str, ...]:
    """Ways to say what a step has measured, or what it has decided."""
    if step.decision is not None:
        return (f"the condition is {str(step.decision).lower()}",)
    return shorter_metrics({**step.metrics, **progress.metrics})


def _trials(name: str, sweep: SweepResult) -> list[_TableLine]:
    """A line for each running trial, below one that counts them."""
    over = sum(trial.status in {SUCCEEDED, FAILED, CANCELLED} for trial in sweep.trials)
    running = [trial for trial in sweep.trials if trial.status == RUNNING]
    names = running[0].parameters if running else ()
    differing = [key for key in names if len({str(trial.parameters.get(key)) for trial in sweep.trials}) > 1]
    lines = [_TableLine("", f"{over} of {sweep.most} trials", metrics=(best_trial(sweep), _best_number(sweep)))]
    for trial in running:
        progress = read_progress(StepFolder(trial.folder).metrics(), tail=True)
        known = "" if trial.metric is None else f"  {sweep.metric} {trial.metric:.4g}"
        own = {key: trial.parameters[key] for key in differing if key in trial.parameters} or trial.parameters
        short = shown_parameters(own)
        values = ", ".join(_shown_parameter(*one) for one in own.items())
        forms = (shown_parameters(trial.parameters) + known, short + known, short, values)
        took = duration_words(trial.seconds)
        lines.append(_TableLine(f"  {name}.{trial.number}", trial.status, "", took, progress, forms))
    return lines


def _bar(progress: StepProgress, width: int) -> str:
    if progress.step is None or not progress.total:
        return ""
    share = min(1.0, progress.step / progress.total)
    full = round(share * width)
    return f"{'█' * full}{'░' * (width - full)} {share:4.0%}"


def shorter_metrics(metrics: Mapping[str, float]) -> tuple[str, ...]:
    """Three metrics in one line, then two, then one."""
    chosen = ([name for name in SHOWN_METRICS if name in metrics] or list(metrics))[:3]
    texts = [f"{name} {metrics[name]:.4g}" for name in chosen]
    return tuple("  ".join(texts[:count]) for count in range(len(texts), 0, -1)) or ("",)


def best_trial(sweep: SweepResult | None) -> str:
    """``best of 8 trials: 5 (learning_rate=0.01)``, and which are not ranked; empty without one."""
    if sweep is None or sweep.best is None:
        return ""
    found = f"{_best_number(sweep)} ({shown_parameters(sweep.trials[sweep.best].parameters)})"
    unranked = [str(trial.number) for trial in sweep.trials if trial.status == SUCCEEDED and trial.metric is None]
    return found + (f"; not ranked, without a finite {sweep.metric}: {', '.join(unranked)}" if unranked else "")


def _best_number(sweep: SweepResult) -> str:
    return "" if sweep.best is None else f"best of {len(sweep.trials)} trials: {sweep.trials[sweep.best].number}"


def shown_parameters(parameters: Mapping[str, Any]) -> str:
    """A trial's values for people, numbers shortened: ``learning_rate=0.01, optimizer=sgd``."""
    return ", ".join(f"{name}={_shown_parameter(name, value)}" for name, value in parameters.items())


def _shown_parameter(name: str, value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else redact_named(name, str(value))

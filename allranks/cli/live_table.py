"""The live table of a run: a row for each step and for each running trial of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from allranks.cli.live_curves import LiveCurves, ShownCurve
from allranks.cli.live_progress import LiveProgress
from allranks.cli.sparklines import SHOWN_METRICS, draw_sparkline, draws_blocks
from allranks.cli.text import one_line
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
    TrialResult,
)
from allranks.redaction import redact_named
from allranks.wording import ranks_words, short_duration, short_number

if TYPE_CHECKING:
    from rich.table import Table

STATUS_STYLES = {SUCCEEDED: "green", FAILED: "bold red", RUNNING: "cyan", RETRYING: "yellow", WAITING: "dim"}
_WORKING = (RUNNING, RETRYING)
_SPEEDS = ("samples_per_second", "tokens_per_second")
_GAP = "  "  # between two metrics
_URGENT = (RUNNING, RETRYING, FAILED, WAITING)  # what a low terminal shows first; all else has ended
_COLUMNS = {
    "step": 0,
    "status": 0,
    "nodes x ranks": 120,
    "time": 0,
    "progress": 50,
    "left": 70,
    "curve": 100,
    "metrics": 80,
}
"""The columns, each with the width of a terminal that is needed to show it."""
_BAR, _CURVE = 10, 20  # characters


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line of the table.

    Attributes:
        seconds: how long it has taken so far; None for what has not begun, or was reused.
        left: seconds that it will go on, if that is known.
        stalled: seconds that it has made no step, where that is unusual; then nobody knows what is left.
        metrics: what was measured.
        curve: the values of the main metric.
    """

    step: str
    status: str
    ranks: str = ""
    seconds: float | None = None
    progress: StepProgress | None = None
    left: float | None = None
    metrics: str = ""
    curve: Sequence[float] = ()
    stalled: float | None = None

    def cells(self) -> dict[str, str]:
        """The text of each column."""
        left = "" if self.left is None else f"~{short_duration(self.left)}"
        return {
            "step": self.step,
            "status": self.status,
            "nodes x ranks": self.ranks,
            "time": "-" if self.seconds is None else short_duration(self.seconds),
            "progress": "" if self.progress is None else _bar(self.progress),
            "left": left if self.stalled is None else f"stalled {short_duration(self.stalled)}",
            "curve": draw_sparkline(self.curve, _CURVE),
            "metrics": self.metrics,
        }


def status_table(
    steps: Sequence[StepResult],
    width: int,
    curves: LiveCurves,
    progress: LiveProgress | None = None,
    height: int | None = None,
) -> Table:
    """Return the table of all steps and of the running trials of sweeps.

    A terminal with fewer lines shows running steps first, then failed and waiting ones, and counts the others.
    """
    from rich.table import Table
    from rich.text import Text

    known = progress or LiveProgress()
    lines = [line for step in steps for line in _lines(step, curves, known)]
    hidden = 0
    if height is not None and len(lines) >= height:
        room = max(1, height - 2)
        lines, hidden = sorted(lines, key=_urgency)[:room], len(lines) - room
    rows = [line.cells() for line in lines]
    shown = [title for title, least in _COLUMNS.items() if width >= least and any(row[title] for row in rows)]
    table = Table(box=None, pad_edge=False, caption_justify="left", caption_style="dim")
    table.caption = f"and {hidden} more" if hidden else None
    longest_name = max(8, min(24, width - 36), width - 96)  # leaves room for the columns without metrics
    for title in shown:
        table.add_column(title, no_wrap=title != "metrics", max_width=longest_name if title == "step" else None)
    for row in rows:
        styles = {"status": STATUS_STYLES.get(row["status"], "")}
        cells = [Text(row[title], styles.get(title, ""), no_wrap=True) for title in shown]
        for cell in cells:
            cell.overflow = "ellipsis" if draws_blocks() else "crop"
        table.add_row(*cells)
    return table


def _urgency(line: TableLine) -> int:
    return _URGENT.index(line.status) if line.status in _URGENT else len(_URGENT)


def _bar(progress: StepProgress) -> str:
    """A bar and a percentage; the number of steps done, where the number of all steps is unknown."""
    if progress.step is None or (progress.step == 0 and not progress.total):
        return ""
    if not progress.total:
        return f"step {progress.step:,}"
    share = min(1.0, progress.step / progress.total)
    full = round(share * _BAR)
    done, rest = "█░" if draws_blocks() else "#."
    return f"{done * full}{rest * (_BAR - full)} {share:4.0%}"


def _lines(step: StepResult, curves: LiveCurves, known: LiveProgress) -> list[TableLine]:
    executed = StepFolder(StepFolder(step.folder).logs.resolve().parent)  # a link, where it is reused
    is_working = step.status in _WORKING
    progress = StepProgress() if _has_not_begun(step) else known.of(executed, is_finished=not is_working)
    if step.status == SUCCEEDED and progress.total:  # one that stops early, or tells only now and then, has its end too
        progress = replace(progress, step=progress.total)
    curve = _curve(step, executed, curves)
    line = TableLine(
        one_line(step.name),
        step.status if step.reused_from is None else "reused",
        ranks_words(step.nodes, step.processes),
        None if step.started is None else step.seconds,
        progress,
        known.left(step.name, step.attempts, progress) if step.status == RUNNING else None,
        _measured(step, progress, curve.metric),
        curve.values,
        stalled=known.stalled(step.name, step.attempts, progress) if step.status == RUNNING else None,
    )
    if step.sweep is None or step.status != RUNNING:
        return [line]
    over = sum(trial.status in {SUCCEEDED, FAILED, CANCELLED} for trial in step.sweep.trials)
    trials = StepProgress(over, step.sweep.most)
    best = best_trial(step.sweep)
    left = known.left(step.name, step.attempts, trials)
    metrics = f"{best}{_GAP}{line.metrics}" if best else ""
    told = replace(line, progress=trials, left=left, metrics=metrics, stalled=None)  # its trials tell that themselves
    return [told, *_trials(step.name, step.sweep, curves, known)]


def _has_not_begun(step: StepResult) -> bool:
    return step.started is None and step.reused_from is None


def _curve(step: StepResult, executed: StepFolder, curves: LiveCurves) -> ShownCurve:
    """That of the best trial so far, where it is a sweep."""
    if _has_not_begun(step):
        return ShownCurve()
    sweep = step.sweep
    if sweep is None:
        return curves.curve_of(executed, is_finished=step.status not in _WORKING)
    if sweep.best is None:
        return ShownCurve()
    best = StepFolder(sweep.trials[sweep.best].folder)
    return curves.curve_of(best, primary=sweep.metric, is_finished=True)


def _measured(step: StepResult, progress: StepProgress, main: str) -> str:
    """What a step has measured, the metric of its curve first, or what it has decided."""
    if step.decision is not None:
        return f"the condition is {str(step.decision).lower()}"
    metrics = {**step.metrics, **progress.metrics}
    measured = {name: metrics[name] for name in metrics if name not in (*_SPEEDS, "epoch")}
    epoch = f"epoch {short_number(metrics['epoch'])}" if "epoch" in metrics else ""
    return _GAP.join(filter(None, (brief_metrics(measured, main), epoch, _throughput(metrics))))


def _throughput(metrics: Mapping[str, float]) -> str:
    name = next((one for one in _SPEEDS if one in metrics), "")
    return f"{short_number(metrics[name])} {name.removesuffix('_per_second')}/s" if name else ""


def _trials(name: str, sweep: SweepResult, curves: LiveCurves, known: LiveProgress) -> list[TableLine]:
    """A line for each running trial."""
    running = [trial for trial in sweep.trials if trial.status == RUNNING]
    names = running[0].parameters if running else ()
    differing = [key for key in names if len({str(trial.parameters.get(key)) for trial in sweep.trials}) > 1]
    return [_trial(name, trial, sweep.metric, differing, curves, known) for trial in running]


def _trial(
    name: str, trial: TrialResult, metric: str, differing: Sequence[str], curves: LiveCurves, known: LiveProgress
) -> TableLine:
    progress = known.of(StepFolder(trial.folder))
    measured = "" if trial.metric is None else f"{_GAP}{metric} {short_number(trial.metric)}"
    own = {key: trial.parameters[key] for key in differing if key in trial.parameters} or trial.parameters
    curve = curves.curve_of(StepFolder(trial.folder), primary=metric)
    points = curve.values if curve.metric == metric else ()
    label = f"{name}.{trial.number}"
    left = known.left(label, 1, progress)
    stalled = known.stalled(label, 1, progress)
    metrics = shown_parameters(own) + measured
    return TableLine(f"  {label}", trial.status, "", trial.seconds, progress, left, metrics, points, stalled)


def brief_metrics(metrics: Mapping[str, float], first: str = "") -> str:
    """Return at most three metrics in one line; ``first`` names one that comes before the others."""
    known = [name for name in SHOWN_METRICS if name in metrics] or list(metrics)
    chosen = [*([first] if first in metrics else ()), *(name for name in known if name != first)][:3]
    return _GAP.join(f"{one_line(name)} {short_number(metrics[name])}" for name in chosen)


def best_trial(sweep: SweepResult | None) -> str:
    """``best of 8 trials: 5 (learning_rate=0.01)``, and which are not ranked; empty without one."""
    if sweep is None or sweep.best is None:
        return ""
    best = sweep.trials[sweep.best]
    found = f"best of {len(sweep.trials)} trials: {best.number} ({shown_parameters(best.parameters)})"
    unranked = [str(trial.number) for trial in sweep.trials if trial.status == SUCCEEDED and trial.metric is None]
    return found + (f"; not ranked, without a finite {sweep.metric}: {', '.join(unranked)}" if unranked else "")


def shown_parameters(parameters: Mapping[str, Any]) -> str:
    """A trial's values for people, numbers shortened: ``learning_rate=0.01, optimizer=sgd``."""
    return ", ".join(f"{name}={_shown_parameter(name, value)}" for name, value in parameters.items())


def _shown_parameter(name: str, value: Any) -> str:
    return short_number(value) if isinstance(value, float) else redact_named(name, str(value))

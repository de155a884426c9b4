"""The rows of a run that goes on: each step's, and each running trial's; the fewest in a low terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from allranks.cli.live_curves import LiveCurves, ShownCurve
from allranks.cli.live_fit import TableLine, fit_table
from allranks.cli.live_progress import LiveProgress
from allranks.cli.sparklines import SHOWN_METRICS
from allranks.cli.text import cut_end, one_line
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
from allranks.wording import ranks_words, short_number

if TYPE_CHECKING:
    from rich.table import Table

STATUS_STYLES = {SUCCEEDED: "green", FAILED: "bold red", RUNNING: "cyan", RETRYING: "yellow", WAITING: "dim"}
_WORKING = (RUNNING, RETRYING)
_SPEEDS = ("samples_per_second", "tokens_per_second")
_GAP = "  "  # between two metrics
_URGENT = {RUNNING: 0, RETRYING: 0, FAILED: 1, WAITING: 2}  # what a low terminal shows first; all else has ended


def status_table(
    steps: Sequence[StepResult],
    width: int,
    curves: LiveCurves,
    progress: LiveProgress | None = None,
    height: int | None = None,
) -> Table:
    """The table of all steps and of the running trials of sweeps, in so many columns and lines."""
    from rich.table import Table
    from rich.text import Text

    known = progress or LiveProgress()
    lines, hidden = _shown_lines([line for step in steps for line in _lines(step, curves, known)], height)
    fit = fit_table(lines, width)
    table = Table(
        box=None, pad_edge=False, caption=cut_end(hidden, width) or None, caption_justify="left", caption_style="dim"
    )
    for title in fit.shown:
        table.add_column(fit.title(title), no_wrap=True)
    for line in lines:
        cells = line.cells(fit)
        style = STATUS_STYLES.get(line.status, "")
        table.add_row(*(Text(cells[title], style=style if title == "status" else "") for title in fit.shown))
    return table


def _shown_lines(lines: Sequence[TableLine], height: int | None) -> tuple[Sequence[TableLine], str]:
    """The lines for which there is room below the titles, in their order, and what there is of others."""
    if height is None or len(lines) < height:
        return lines, ""
    room = max(1, height - 2)
    ended = len(_URGENT)
    # Of what waits the next to come, of what has ended the last.
    order = [
        (_URGENT.get(line.status, ended), at if line.status in _URGENT else -at, at) for at, line in enumerate(lines)
    ]
    chosen = {at for *_, at in sorted(order)[:room]}
    numbers = Counter(line.status for at, line in enumerate(lines) if at not in chosen)
    rest = f"and {len(lines) - room} more: {', '.join(f'{number} {status}' for status, number in numbers.items())}"
    return [line for at, line in enumerate(lines) if at in chosen], rest if height > 2 else ""


def _lines(step: StepResult, curves: LiveCurves, known: LiveProgress) -> list[TableLine]:
    executed = StepFolder(StepFolder(step.folder).logs.resolve().parent)  # a link, where it is reused
    is_working = step.status in _WORKING
    progress = StepProgress() if _has_not_begun(step) else known.of(executed, is_finished=not is_working)
    if step.status == SUCCEEDED and progress.total:  # one that stops early, or tells only now and then, has its end too
        progress = replace(progress, step=progress.total)
    curve = _curve(step, executed, curves)
    line = TableLine(
        one_line(step.name),
        step.status,
        ranks_words(step.nodes, step.processes),
        None if step.started is None else step.seconds,
        progress,
        known.left(step.name, step.attempts, progress) if step.status == RUNNING else None,
        _measured(step, progress, curve.metric),
        curve.values,
        is_reused=step.reused_from is not None,
        stalled=known.stalled(step.name, step.attempts, progress) if step.status == RUNNING else None,
    )
    if step.sweep is None or step.status != RUNNING:
        return [line]
    over = sum(trial.status in {SUCCEEDED, FAILED, CANCELLED} for trial in step.sweep.trials)
    trials = StepProgress(over, step.sweep.most)
    best = (*_best_values(step.sweep, line.metrics),)
    left = known.left(step.name, step.attempts, trials)
    told = replace(line, progress=trials, left=left, metrics=best, stalled=None)  # its trials tell that for themselves
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


def _measured(step: StepResult, progress: StepProgress, main: str) -> tuple[str, ...]:
    """Ways to say what a step has measured, the metric of its curve first, or what it has decided."""
    if step.decision is not None:
        return (f"the condition is {str(step.decision).lower()}",)
    metrics = {**step.metrics, **progress.metrics}
    further = [text for text in (_epoch(metrics), _throughput(metrics)) if text]
    brief = shorter_metrics({name: metrics[name] for name in metrics if name not in (*_SPEEDS, "epoch")}, main)
    fuller = [_GAP.join(filter(None, (brief[0], *further[:count]))) for count in range(len(further), 0, -1)]
    return (*fuller, *(brief if any(brief) else further[:1] or brief))


def _epoch(metrics: Mapping[str, float]) -> str:
    return f"epoch {short_number(metrics['epoch'])}" if "epoch" in metrics else ""


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
    measured = "" if trial.metric is None else f"  {metric} {short_number(trial.metric)}"
    own = {key: trial.parameters[key] for key in differing if key in trial.parameters} or trial.parameters
    short = shown_parameters(own)
    values = ", ".join(_shown_parameter(*one) for one in own.items())
    forms = (shown_parameters(trial.parameters) + measured, short + measured, short, values)
    curve = curves.curve_of(StepFolder(trial.folder), primary=metric)
    points = curve.values if curve.metric == metric else ()
    label = f"{name}.{trial.number}"
    left = known.left(label, 1, progress)
    stalled = known.stalled(label, 1, progress)
    return TableLine(f"  {label}", trial.status, "", trial.seconds, progress, left, forms, points, stalled=stalled)


def _best_values(sweep: SweepResult, measured: Sequence[str]) -> tuple[str, ...]:
    """Ways to say which trial is the best so far, and what it has measured."""
    best = best_trial(sweep)
    number, value = _best_number(sweep), measured[-1]
    return (f"{best}  {value}", f"{number}  {value}", number) if best else ("",)


def shorter_metrics(metrics: Mapping[str, float], first: str = "") -> tuple[str, ...]:
    """Three metrics in one line, then two, then one; one of them may be wanted first."""
    known = [name for name in SHOWN_METRICS if name in metrics] or list(metrics)
    chosen = [*([first] if first in metrics else ()), *(name for name in known if name != first)][:3]
    texts = [f"{one_line(name)} {short_number(metrics[name])}" for name in chosen]
    return tuple(_GAP.join(texts[:count]) for count in range(len(texts), 0, -1)) or ("",)


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
    return short_number(value) if isinstance(value, float) else redact_named(name, str(value))

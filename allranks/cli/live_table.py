"""The table of a run that goes on, fitted to the terminal: names and times always stay, the rest gives way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from allranks.cli.live_curves import LiveCurves, ShownCurve
from allranks.cli.sparklines import LONGEST_CURVE, SHOWN_METRICS, draw_sparkline, draws_blocks
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

STATUS_STYLES = {SUCCEEDED: "green", FAILED: "bold red", RUNNING: "cyan", RETRYING: "yellow", WAITING: "dim"}
_COLUMNS = ("step", "status", "nodes x ranks", "time", "progress", "curve", "metrics")
_IN_NARROW = ("step", "status", "time", "progress")  # all that fits into a terminal of fewer than NARROW_WIDTH columns
_GAP = 2  # between two columns
_BARS = (16, 6)  # of progress; the shorter where there is no room for the longer
_LEAST = 12  # characters of metrics that are worth a column
_LEAST_CURVE = 8  # and of a curve


@dataclass(frozen=True, slots=True)
class _TableLine:
    """One line of the table; its metrics are ways to say what was measured, the fullest first, after their curve."""

    step: str
    status: str
    ranks: str = ""
    time: str = ""
    progress: StepProgress | None = None
    metrics: Sequence[str] = ("",)
    style: str = ""
    curve: Sequence[float] = ()

    def cells(self, fit: _Fit) -> dict[str, str]:
        """What each column holds."""
        metrics = next((text for text in self.metrics if len(text) <= fit.room), self.metrics[-1])
        if len(metrics) > fit.room:
            metrics = metrics[: max(0, fit.room - 1)] + ("…" if draws_blocks() else "~")
        progress = "" if self.progress is None else _bar(self.progress, fit.bar)
        curve = draw_sparkline(self.curve, fit.curve) if fit.curve else ""
        cells = (self.step, self.status, self.ranks, self.time, progress, curve, metrics)
        return dict(zip(_COLUMNS, cells, strict=True))


@dataclass(frozen=True, slots=True)
class _Fit:
    """Which columns a table has, and how many characters its bars, its curves and its metrics."""

    shown: Sequence[str]
    bar: int
    curve: int = 0
    room: int = 0


def status_table(steps: Sequence[StepResult], width: int, curves: LiveCurves) -> Table:
    """The table of all steps and of the running trials of sweeps, in so many columns."""
    from rich.table import Table
    from rich.text import Text

    lines = [line for step in steps for line in _lines(step, curves)]
    fit = _fit(lines, width)
    table = Table(box=None, pad_edge=False)
    for title in fit.shown:
        table.add_column(title, no_wrap=True)
    for line in lines:
        cells = line.cells(fit)
        table.add_row(*(Text(cells[title], style=line.style if title == "status" else "") for title in fit.shown))
    return table


def _fit(lines: Sequence[_TableLine], width: int) -> _Fit:
    """The first choice that has room for all: of curves with all metrics, then with one of each step, then of none."""
    if width < NARROW_WIDTH:
        bars = (bar for bar in _BARS if _room(lines, _IN_NARROW, bar, width) >= -_GAP)
        bar = next(bars, 0)
        return _Fit(_IN_NARROW if bar else _without(_IN_NARROW, "progress"), bar)
    plain = _without(_COLUMNS, "curve")
    choices = [
        (plain, _BARS[0]),
        (_without(plain, "nodes x ranks"), _BARS[0]),
        (_without(plain, "nodes x ranks"), _BARS[1]),
    ]
    fullest, briefest = (max((len(line.metrics[place]) for line in lines), default=0) for place in (0, -1))
    if any(line.curve for line in lines):
        drawn = [(*choice, fullest) for choice in choices]
        drawn += [(choices[2][0], _BARS[1], briefest), (_without(choices[2][0], "progress"), 0, briefest)]
        for shown, bar, wanted in drawn:
            curve = _room(lines, shown, bar, width) - wanted - _GAP
            if curve >= _LEAST_CURVE:
                kept = [title for title in _COLUMNS if title in (*shown, "curve")]
                return _Fit(kept, bar, min(curve, LONGEST_CURVE), wanted)
    for shown, bar in choices:
        room = _room(lines, shown, bar, width)
        if room >= fullest:
            return _Fit(shown, bar, room=room)
    return _Fit(_without(shown, "metrics"), bar) if room < _LEAST else _Fit(shown, bar, room=room)


def _without(columns: Sequence[str], title: str) -> list[str]:
    return [one for one in columns if one != title]


def _room(lines: Sequence[_TableLine], shown: Sequence[str], bar: int, width: int) -> int:
    """The characters that the other columns leave for the metrics and the curve."""
    filled = [line.cells(_Fit(shown, bar)) for line in lines]
    taken = [max([len(title), *(len(cells[title]) for cells in filled)]) for title in _without(shown, "metrics")]
    return width - sum(taken) - _GAP * len(taken)


def _lines(step: StepResult, curves: LiveCurves) -> list[_TableLine]:
    progress = read_progress(StepFolder(step.folder).metrics(), tail=True)
    curve = _curve(step, curves)
    line = _TableLine(
        step.name,
        step.status + (" (reused)" if step.reused_from else ""),
        f"{step.nodes} x {step.processes}" if step.nodes else "",
        duration_words(step.seconds) if step.started is not None else "",
        progress if step.status == RUNNING else None,
        _measured(step, progress, curve.metric),
        STATUS_STYLES.get(step.status, ""),
        curve.values,
    )
    is_open = step.sweep is not None and step.status == RUNNING
    return [line, *(_trials(step.name, step.sweep, curves) if step.sweep is not None and is_open else ())]


def _curve(step: StepResult, curves: LiveCurves) -> ShownCurve:
    """That of the best trial so far, where it is a sweep."""
    if step.started is None and step.reused_from is None:
        return ShownCurve()
    sweep, is_finished = step.sweep, step.status not in (RUNNING, RETRYING)
    if sweep is None:
        executed = StepFolder(StepFolder(step.folder).logs.resolve().parent)  # a link, where it is reused
        return curves.curve_of(executed, is_finished=is_finished)
    if sweep.best is None:
        return ShownCurve()
    best = StepFolder(sweep.trials[sweep.best].folder)
    return curves.curve_of(best, primary=sweep.metric, is_finished=True)


def _measured(step: StepResult, progress: StepProgress, main: str) -> tuple[str, ...]:
    """Ways to say what a step has measured, the metric of its curve first, or what it has decided."""
    if step.decision is not None:
        return (f"the condition is {str(step.decision).lower()}",)
    return shorter_metrics({**step.metrics, **progress.metrics}, main)


def _trials(name: str, sweep: SweepResult, curves: LiveCurves) -> list[_TableLine]:
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
        curve = curves.curve_of(StepFolder(trial.folder), primary=sweep.metric)
        points = curve.values if curve.metric == sweep.metric else ()
        lines.append(_TableLine(f"  {name}.{trial.number}", trial.status, "", took, progress, forms, curve=points))
    return lines


def _bar(progress: StepProgress, width: int) -> str:
    if progress.step is None or not progress.total:
        return ""
    share = min(1.0, progress.step / progress.total)
    full = round(share * width)
    done, rest = "█░" if draws_blocks() else "#."
    return f"{done * full}{rest * (width - full)} {share:4.0%}" if width else f"{share:4.0%}"


def shorter_metrics(metrics: Mapping[str, float], first: str = "") -> tuple[str, ...]:
    """Three metrics in one line, then two, then one; one of them may be wanted first."""
    known = [name for name in SHOWN_METRICS if name in metrics] or list(metrics)
    chosen = [*([first] if first in metrics else ()), *(name for name in known if name != first)][:3]
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

"""Which columns a live table has in so many characters: name, state, progress and time always stay, the rest gives way.

In this order: nodes and ranks, all metrics but the first, the curve, the bar but for its percentage, the metrics, the
time that is left. Only when words and times are at their shortest are names shortened, in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allranks.cli.sparklines import LONGEST_CURVE, draw_sparkline, draws_blocks
from allranks.cli.text import NARROW_WIDTH, cell_width, cut_end, cut_middle
from allranks.local.result import StepProgress
from allranks.wording import duration_words, short_duration

COLUMNS = ("step", "status", "nodes x ranks", "time", "progress", "left", "curve", "metrics")
_CORE = ("step", "status", "time", "progress", "left")
_GAP = 2  # between two columns
_BARS = (16, 6)  # of progress; the shorter where there is no room for the longer
_LEAST = 12  # characters of metrics that are worth a column
_LEAST_CURVE = 8  # and of a curve
_LEAST_NAME = 8  # of a name, for which the progress gives way


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line of the table.

    Attributes:
        seconds: how long it has taken so far; None for what has not begun, or was reused.
        left: seconds that it will go on, if that is known.
        stalled: seconds that it has made no step, where that is unusual; then nobody knows what is left.
        metrics: ways to say what was measured, the fullest first, after their curve.
        is_reused: its status is another run's.
    """

    step: str
    status: str
    ranks: str = ""
    seconds: float | None = None
    progress: StepProgress | None = None
    left: float | None = None
    metrics: Sequence[str] = ("",)
    curve: Sequence[float] = ()
    is_reused: bool = False
    stalled: float | None = None

    @property
    def outlook(self) -> str:
        """How long it will go on, as far as that can be told."""
        if self.stalled is not None:
            return f"stalled {short_duration(self.stalled)}"
        return "" if self.left is None else f"~{short_duration(self.left)}"

    def cells(self, fit: TableFit) -> dict[str, str]:
        """What each column holds."""
        metrics = next((text for text in self.metrics if cell_width(text) <= fit.room), self.metrics[-1])
        reused = "reused" if fit.is_short else f"{self.status} (reused)"
        words = short_duration if fit.is_short else duration_words
        return {
            "step": cut_middle(self.step, fit.name) if fit.name else self.step,
            "status": reused if self.is_reused else self.status,
            "nodes x ranks": self.ranks,
            "time": "-" if self.seconds is None else words(self.seconds),
            "progress": "" if self.progress is None else _bar(self.progress, fit.bar),
            "left": self.outlook,
            "curve": draw_sparkline(self.curve, fit.curve) if fit.curve else "",
            "metrics": cut_end(metrics, fit.room),
        }


@dataclass(frozen=True, slots=True)
class TableFit:
    """Which columns a table has, and how many characters its bars, curves, metrics and names; 0 keeps names whole."""

    shown: Sequence[str]
    bar: int = 0
    curve: int = 0
    room: int = 0
    name: int = 0
    is_short: bool = False

    def title(self, column: str) -> str:
        """What stands above a column."""
        return "done" if column == "progress" and not self.bar else column


def fit_table(lines: Sequence[TableLine], width: int) -> TableFit:
    """The first choice of columns that has room for all lines."""
    shown = [title for title in COLUMNS if title != "left" or any(line.outlook for line in lines)]
    fit = _wide_fit(lines, shown, width) if width >= NARROW_WIDTH else None
    return fit or _narrow_fit(lines, [title for title in shown if title in _CORE], width)


def _wide_fit(lines: Sequence[TableLine], columns: Sequence[str], width: int) -> TableFit | None:
    """One with metrics, or at least with bars: with a curve and all metrics, a curve and one, then without curve."""
    plain = _without(columns, "curve")
    slim = _without(plain, "nodes x ranks")
    choices = [(plain, _BARS[0]), (slim, _BARS[0]), (slim, _BARS[1])]
    fullest, briefest = (max((cell_width(line.metrics[at]) for line in lines), default=0) for at in (0, -1))
    if any(line.curve for line in lines):
        for shown, bar, wanted in [*((*choice, fullest) for choice in choices), (slim, _BARS[1], briefest)]:
            curve = _room(lines, shown, bar, width) - wanted - _GAP
            if curve >= _LEAST_CURVE:
                kept = [title for title in COLUMNS if title in (*shown, "curve")]
                used = max(_LEAST_CURVE, min(curve, LONGEST_CURVE, max(len(line.curve) for line in lines)))
                return TableFit(kept, bar, used, wanted + curve - used)
    for shown, bar in choices:
        room = _room(lines, shown, bar, width)
        if room >= fullest:
            return TableFit(shown, bar, room=room)
    for bar in (_BARS[1], 0):
        room = _room(lines, slim, bar, width)
        if room >= min(_LEAST, fullest):
            return TableFit(slim, bar, room=room)
    return None


def _narrow_fit(lines: Sequence[TableLine], core: Sequence[str], width: int) -> TableFit:
    """One of what always stays, as long as names have room; in the end they are cut."""
    rest = _without(core, "left")
    choices = [*(TableFit(core, bar) for bar in (*_BARS, 0)), TableFit(core, is_short=True)]
    choices.append(TableFit(rest, is_short=True))
    for fit in choices:
        if sum(_widths(lines, fit)) + _GAP * (len(fit.shown) - 1) <= width:
            return fit
    for shown in (rest, _without(rest, "progress")):
        fit = TableFit(_without(shown, "step"), is_short=True)
        name = width - sum(_widths(lines, fit)) - _GAP * len(fit.shown)
        if name >= _LEAST_NAME:
            break
    return TableFit(shown, name=max(1, name), is_short=True)


def _without(columns: Iterable[str], title: str) -> list[str]:
    return [one for one in columns if one != title]


def _widths(lines: Sequence[TableLine], fit: TableFit) -> list[int]:
    filled = [line.cells(fit) for line in lines]
    return [max(map(cell_width, [fit.title(one), *(cells[one] for cells in filled)])) for one in fit.shown]


def _room(lines: Sequence[TableLine], shown: Sequence[str], bar: int, width: int) -> int:
    """The characters that the other columns leave for the metrics and the curve."""
    taken = _widths(lines, TableFit(_without(shown, "metrics"), bar))
    return width - sum(taken) - _GAP * len(taken)


def _bar(progress: StepProgress, width: int) -> str:
    """A bar and a percentage; the number of steps done, where nobody has said of how many."""
    if progress.step is None or (progress.step == 0 and not progress.total):
        return ""
    if not progress.total:
        return f"step {progress.step:,}" if width else f"{progress.step:,}"
    share = min(1.0, progress.step / progress.total)
    full = round(share * width)
    done, rest = "█░" if draws_blocks() else "#."
    return f"{done * full}{rest * (width - full)} {share:4.0%}" if width else f"{share:4.0%}"

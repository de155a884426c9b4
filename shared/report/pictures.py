"""The pictures: confusion matrix, ROC curves, calibration; predictions and residuals; losses of a language model.

Drawn without a display and without pyplot's state, on white in both schemes of the page: a grey that reads on white and
on black has too little contrast for either. Names come from files of the user's: a ``$`` in one is no formula.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shared.metrics import Calibration, Confusion, Floats, Roc

# The page's colours in its light scheme: on white 4.5 to 1 and more for lettering, 3 for lines (WCAG AA).
INK = "#596273"
_ACCENT = "#1a5fd0"
CURVES = (_ACCENT, "#b46a00", "#16803c", "#c8321f", "#7a3fc4")  # then the same again, dashed
_SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", _ACCENT])

NO_CURVES = "no curve: all rows are of one class"
_MOST_CELLS = 300  # to a side, which a picture of 12 inches can show
_MOST_NUMBERS = 30  # classes, above which numbers in the cells could not be read
_MOST_CURVES = 10  # classes, above which curves have no names
_MOST_DOTS = 4_000  # of a cloud
_BINS = 60


def draw_confusion_matrix(confusion: Confusion, classes: Sequence[str]) -> bytes:
    """Draw the confusion matrix as PNG: numbers are rows, shades are the share of the label's rows.

    Of many classes several that follow each other share a cell: the picture has no room for more.
    """
    count, matrix = len(classes), confusion.matrix(_MOST_CELLS)
    side = float(np.clip(0.45 * count + 2, 4.5, 12))
    figure, axes = _figure("prediction", "label", side, side)
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    extent = (-0.5, count - 0.5, count - 0.5, -0.5)
    axes.imshow(share, cmap=_SHADES, vmin=0, vmax=1, extent=extent)
    if count <= _MOST_NUMBERS:
        names = [_short(name) for name in classes]
        slanted = 90 if max(map(len, names)) > 3 else 0
        axes.set_xticks(range(count), names, rotation=slanted, parse_math=False)
        axes.set_yticks(range(count), names, parse_math=False)
        for row, column in np.argwhere(matrix > 0):
            number, color = str(matrix[row, column]), readable_on(_SHADES(share[row, column])[:3])
            axes.text(column, row, number, ha="center", va="center", color=color, fontsize=8)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return _png(figure)


def draw_roc(rocs: Mapping[int, Roc], classes: Sequence[str]) -> bytes:
    """Draw the ROC curves as PNG, each class against all others; without any it says so.

    Of more than 300 curves some, evenly spaced, are drawn.
    """
    figure, axes = _figure("false positive rate", "true positive rate")
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    named = len(rocs) <= _MOST_CURVES
    for place, (number, curve) in enumerate(list(rocs.items())[:: -(-len(rocs) // _MOST_CELLS) or 1]):
        label = f"{_short(classes[number])}  {curve.auc:.3f}" if named else None
        again, hue = divmod(place, len(CURVES))
        style: dict[str, Any] = {"linewidth": 1.4, "color": CURVES[hue], "linestyle": "--" if again else "-"}
        style = style if named else {"linewidth": 0.6, "alpha": 0.4, "color": _ACCENT}
        axes.plot(curve.false_positive_rate, curve.true_positive_rate, label=label, **style)
    if named and rocs:
        legend = axes.legend(title="class, area", frameon=False, fontsize=8, title_fontsize=8, labelcolor=INK)
        legend.get_title().set_color(INK)
        for text in legend.get_texts():
            text.set_parse_math(False)
    if not rocs:
        axes.text(0.62, 0.2, NO_CURVES, ha="center", color=INK)
    return _png(figure)


def draw_calibration(found: Calibration) -> bytes:
    """PNG of accuracy over confidence; on the diagonal a model is as often right as it says."""
    figure, axes = _figure("confidence", "accuracy")
    width = 1 / len(found.rows)
    used = found.rows > 0
    left = np.arange(len(found.rows))[used] * width
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.bar(left, found.accuracy[used], width, align="edge", color=_ACCENT, alpha=0.75, label="accuracy")
    (dots,) = axes.plot(found.confidence[used], found.accuracy[used], "o", color=CURVES[1], label="mean confidence")
    dots.set(markersize=5, markeredgecolor="white")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.legend(framealpha=0.9, edgecolor="none", fontsize=8, labelcolor=INK, loc="upper left")
    return _png(figure)


def predicted_true(targets: Floats, predictions: Floats, name: str) -> bytes:
    """PNG of predictions over true values; on the diagonal the model is right."""
    figure, axes = _figure(f"true {_short(name)}", "predicted")
    dots = _some(len(targets))
    ends = [min(targets.min(), predictions.min()), max(targets.max(), predictions.max())]
    axes.plot(ends, ends, color=INK, linewidth=0.8, linestyle=":")
    axes.scatter(targets[dots], predictions[dots], s=6, color=_ACCENT, alpha=0.35, linewidths=0)
    return _png(figure)


def draw_residuals(predictions: Floats, found: Floats) -> bytes:
    """PNG of residuals (prediction less true value) over predictions."""
    figure, axes = _figure("predicted", "residual")
    dots = _some(len(found))
    axes.axhline(0, color=INK, linewidth=0.8, linestyle=":")
    axes.scatter(predictions[dots], found[dots], s=6, color=_ACCENT, alpha=0.35, linewidths=0)
    return _png(figure)


def draw_histogram(values: Floats, marked: float, xlabel: str) -> bytes:
    """PNG of how many rows have which value, with a line at one of them."""
    figure, axes = _figure(xlabel, "rows")
    axes.hist(values, bins=_BINS, color=_ACCENT, alpha=0.75)
    axes.axvline(marked, color=INK, linewidth=0.8, linestyle=":")
    return _png(figure)


def loss_by_position(losses: Floats) -> bytes:
    """PNG of the mean loss at each place in a row."""
    figure, axes = _figure("token of the row", "nats")
    axes.plot(np.arange(1, len(losses) + 1), losses, color=_ACCENT, linewidth=1.4)
    axes.set_ylim(bottom=0)
    return _png(figure)


def _some(count: int) -> npt.NDArray[np.int64]:
    """Evenly spaced rows, as many as a picture can show."""
    return np.unique(np.linspace(0, count - 1, _MOST_DOTS).astype(np.int64))


def _figure(xlabel: str, ylabel: str, width: float = 5.2, height: float = 4.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(colors=INK, labelsize=8)
    axes.set_xlabel(xlabel, color=INK, parse_math=False)
    axes.set_ylabel(ylabel, color=INK)
    for spine in axes.spines.values():
        spine.set_color(INK)
        spine.set_linewidth(0.6)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # No software or date in the file: the same numbers give the same bytes.
    figure.savefig(buffer, format="png", dpi=140, metadata={"Software": None})
    return buffer.getvalue()


def readable_on(color: Sequence[float]) -> str:
    """Black or white, whichever stands out more: 4.58 to 1 at least, on any colour (red, green and blue in 0 to 1)."""
    return "black" if contrast(color, to_rgb("black")) > contrast(color, to_rgb("white")) else "white"


def contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """How far two colours stand apart, 1 to 21, as WCAG 2.2 defines it (relative luminance of sRGB)."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: Sequence[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"

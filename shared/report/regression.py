"""Write the files of a regression's report: metrics.json, predictions.csv, the pictures, and index.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shared.metrics import RegressionMetrics
from shared.report.files import Subject, write_files, write_table

_HEADLINES = {"rmse": "RMSE", "mae": "Mean absolute error", "r2": "R²", "bias": "Mean residual"}
_MOST_ERRORS = 12
_BLOCK_ROWS = 2**16


def write_regression(folder: Path, result: RegressionMetrics, subject: Subject) -> None:
    """Write all files of the report into a folder, which is made if needed."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers = result.numbers()
    images = {
        "predicted_true.png": pictures.predicted_true(result.targets, result.predictions, subject.target),
        "residuals.png": pictures.draw_residuals(result.predictions, result.residuals),
        "residual_histogram.png": pictures.draw_histogram(result.residuals, 0, "residual"),
    }
    headlines = [(title, f"{numbers[name]:.4g}") for name, title in _HEADLINES.items() if name in numbers]
    write_files(folder, "regression.html", subject, numbers, headlines, images, errors=_largest_errors(result))
    write_table(folder / "predictions.csv", ("row", "target", "prediction", "residual"), _lines(result))


def _lines(result: RegressionMetrics) -> Iterator[tuple[float, ...]]:
    """The table of predictions, of which memory holds a block: a float of Python's is four times one of NumPy's."""
    columns = (np.arange(len(result.targets)), result.targets, result.predictions, result.residuals)
    for first in range(0, len(result.targets), _BLOCK_ROWS):
        yield from zip(*(column[first : first + _BLOCK_ROWS].tolist() for column in columns), strict=True)


def _largest_errors(result: RegressionMetrics) -> list[tuple[float, ...]]:
    """Row, target, prediction and residual where the prediction is furthest from the target."""
    rows = np.argsort(-np.abs(result.residuals), kind="stable")[:_MOST_ERRORS]
    columns = (rows, result.targets[rows], result.predictions[rows], result.residuals[rows])
    return list(zip(*(column.tolist() for column in columns), strict=True))

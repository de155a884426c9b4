"""Write the files of a regression's report: metrics.json, predictions.csv, the pictures, and index.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shared.metrics import RegressionMetrics
from shared.report.files import Subject, WorstRow, write_files, write_table, write_worst_rows
from shared.report.shown_rows import RowReader

_HEADLINES = {"rmse": "RMSE", "mae": "Mean absolute error", "r2": "R²", "bias": "Mean residual"}
_BLOCK_ROWS = 2**16


def write_regression(folder: Path, result: RegressionMetrics, subject: Subject, reader: RowReader, worst: int) -> None:
    """Write all files of the report into a folder, which is made if needed; the worst rows are that many at most."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers = result.numbers()
    images = {
        "predicted_true.png": pictures.predicted_true(result.targets, result.predictions, subject.target),
        "residuals.png": pictures.draw_residuals(result.predictions, result.residuals),
        "residual_histogram.png": pictures.draw_histogram(result.residuals, 0, "residual"),
    }
    headlines = [(title, f"{numbers[name]:.4g}") for name, title in _HEADLINES.items() if name in numbers]
    errors = _largest_errors(result, reader, worst)
    write_files(folder, "regression.html", subject, numbers, headlines, images, worst=errors)
    write_worst_rows(folder, errors)
    write_table(folder / "predictions.csv", ("row", "target", "prediction", "residual"), _lines(result))


def _lines(result: RegressionMetrics) -> Iterator[tuple[float, ...]]:
    """The table of predictions, of which memory holds a block: a float of Python's is four times one of NumPy's."""
    columns = (np.arange(len(result.targets)), result.targets, result.predictions, result.residuals)
    for first in range(0, len(result.targets), _BLOCK_ROWS):
        yield from zip(*(column[first : first + _BLOCK_ROWS].tolist() for column in columns), strict=True)


def _largest_errors(result: RegressionMetrics, reader: RowReader, most: int) -> list[WorstRow]:
    """The rows whose prediction is furthest from the target; of equal ones the lower row comes first."""
    rows = np.argsort(-np.abs(result.residuals), kind="stable")[:most]
    columns = {"target": result.targets, "prediction": result.predictions, "residual": result.residuals}
    shown = reader.show(rows)
    return [
        WorstRow(int(row), {name: float(column[row]) for name, column in columns.items()}, one)
        for row, one in zip(rows, shown, strict=True)
    ]

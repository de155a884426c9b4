"""Write a classifier's report: metrics.json, worst_rows.json, two tables, the pictures, and index.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shared.metrics import ClassificationMetrics, Integers
from shared.report.files import Subject, WorstRow, write_files, write_table, write_worst_rows
from shared.report.shown_rows import RowReader

_HEADLINES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "auc": "ROC AUC",
    "loss": "Cross entropy",
    "ece": "Calibration error",
}
_MOST_CLASSES = 50  # that are listed at once
_WEAKEST = 20  # of more classes, that stand first


def write_classification(
    folder: Path, result: ClassificationMetrics, labels: Integers, subject: Subject, reader: RowReader, worst: int
) -> None:
    """Write all files of the report into a folder, which is made if needed; the worst rows are that many at most."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers, classes = result.numbers(), _class_rows(result, subject.classes)
    images = {
        "confusion_matrix.png": pictures.draw_confusion_matrix(result.confusion, subject.classes),
        "roc.png": pictures.draw_roc(result.rocs, subject.classes),
        "calibration.png": pictures.draw_calibration(result.calibration),
    }
    headlines = [(title, f"{numbers[name]:.4f}") for name, title in _HEADLINES.items() if name in numbers]
    mistakes = _surest_mistakes(result, labels, subject.classes, reader, worst)
    more = {
        "classes": classes,
        "weakest": _weakest(result, classes),
        "worst": mistakes,
        "wrong": int((result.predictions != labels).sum()),
    }
    write_files(folder, "classification.html", subject, numbers, headlines, images, **more)
    write_worst_rows(folder, mistakes)
    _write_predictions(folder / "predictions.csv", result, labels, subject.classes)
    write_table(folder / "classes.csv", ("class", "rows", "precision", "recall", "f1", "auc"), classes)


def _class_rows(result: ClassificationMetrics, classes: Sequence[str]) -> list[tuple[object, ...]]:
    """Name, rows, precision, recall, F1 and area under the curve of each class; None where no curve exists."""
    scores = result.scores
    columns = [column.tolist() for column in (scores.support, scores.precision, scores.recall, scores.f1)]
    areas = [result.rocs[number].auc if number in result.rocs else None for number in range(len(classes))]
    return list(zip(classes, *columns, areas, strict=True))


def _weakest(result: ClassificationMetrics, rows: Sequence[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Of more classes than can be overlooked: those of the lowest F1 among those that occur, the lowest first."""
    if len(rows) <= _MOST_CLASSES:
        return []
    occurring = np.flatnonzero(result.scores.support)
    return [rows[place] for place in occurring[np.argsort(result.scores.f1[occurring], kind="stable")][:_WEAKEST]]


def _surest_mistakes(
    result: ClassificationMetrics, labels: Integers, classes: Sequence[str], reader: RowReader, most: int
) -> list[WorstRow]:
    """The wrong predictions that the model was surest of; of equal ones the lower row comes first."""
    wrong = np.flatnonzero(result.predictions != labels)
    surest = wrong[np.argsort(-result.probability[wrong], kind="stable")][:most]
    return [
        WorstRow(
            int(row),
            {
                "label": classes[labels[row]],
                "prediction": classes[result.predictions[row]],
                "probability": float(result.probability[row]),
            },
            shown,
        )
        for row, shown in zip(surest, reader.show(surest), strict=True)
    ]


def _write_predictions(path: Path, result: ClassificationMetrics, labels: Integers, classes: Sequence[str]) -> None:
    """One line for each row of the split: its number, label, prediction, and the prediction's probability."""
    names = np.array(classes, dtype=object)
    columns = (names[labels], names[result.predictions], result.probability)
    lines = ((row, label, said, f"{p:.6f}") for row, (label, said, p) in enumerate(zip(*columns, strict=True)))
    write_table(path, ("row", "label", "prediction", "probability"), lines)

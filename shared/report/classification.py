"""Write a classifier's report: metrics.json, predictions.csv, classes.csv, the pictures, and index.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shared.metrics import ClassificationMetrics, Integers
from shared.report.files import Subject, write_files, write_table

_HEADLINES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "auc": "ROC AUC",
    "loss": "Cross entropy",
    "ece": "Calibration error",
}
_MOST_MISTAKES = 12


def write_classification(folder: Path, result: ClassificationMetrics, labels: Integers, subject: Subject) -> None:
    """Write all files of the report into a folder, which is made if needed."""
    # Only the one process that draws pays for this import.
    from shared.report import pictures

    numbers, classes = result.numbers(), _class_rows(result, subject.classes)
    images = {
        "confusion_matrix.png": pictures.draw_confusion_matrix(result.confusion, subject.classes),
        "roc.png": pictures.draw_roc(result.rocs, subject.classes),
        "calibration.png": pictures.draw_calibration(result.calibration),
    }
    headlines = [(title, f"{numbers[name]:.4f}") for name, title in _HEADLINES.items() if name in numbers]
    wrong = _mistakes(result, labels, subject.classes)
    write_files(folder, "classification.html", subject, numbers, headlines, images, classes=classes, mistakes=wrong)
    _write_predictions(folder / "predictions.csv", result, labels, subject.classes)
    write_table(folder / "classes.csv", ("class", "rows", "precision", "recall", "f1", "auc"), classes)


def _class_rows(result: ClassificationMetrics, classes: Sequence[str]) -> list[tuple[object, ...]]:
    """Name, rows, precision, recall, F1 and area under the curve of each class; None where no curve exists."""
    scores = result.scores
    columns = [column.tolist() for column in (scores.support, scores.precision, scores.recall, scores.f1)]
    areas = [result.rocs[number].auc if number in result.rocs else None for number in range(len(classes))]
    return list(zip(classes, *columns, areas, strict=True))


def _mistakes(
    result: ClassificationMetrics, labels: Integers, classes: Sequence[str]
) -> list[tuple[int, str, str, float]]:
    """The wrong predictions that the model was surest of: row, label, prediction and its probability."""
    wrong = np.flatnonzero(result.predictions != labels)
    surest = wrong[np.argsort(-result.probability[wrong], kind="stable")][:_MOST_MISTAKES]
    return [
        (int(row), classes[labels[row]], classes[result.predictions[row]], float(result.probability[row]))
        for row in surest
    ]


def _write_predictions(path: Path, result: ClassificationMetrics, labels: Integers, classes: Sequence[str]) -> None:
    """One line for each row of the split: its number, label, prediction, and the prediction's probability."""
    names = np.array(classes, dtype=object)
    columns = (names[labels], names[result.predictions], result.probability)
    lines = ((row, label, said, f"{p:.6f}") for row, (label, said, p) in enumerate(zip(*columns, strict=True)))
    write_table(path, ("row", "label", "prediction", "probability"), lines)

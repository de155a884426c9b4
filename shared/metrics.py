"""Exact metrics of classes and of numbers, in NumPy; what scikit-learn computes, without its 2 s of import.

Everything is float64 and depends on the rows alone, not on how many ranks predicted them. Memory holds some numbers for
each row and the probabilities of a few classes at a time, however many classes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_CURVE_POINTS = 500  # that are kept: more cannot be seen


class Logits(Protocol):
    """Finite logits of N rows in C classes, read a piece at a time."""

    def blocks(self) -> Iterator[tuple[Integers, npt.NDArray[np.floating[Any]]]]:
        """Numbers of some rows (n,) and their logits (C, n), until each row has come once."""

    def columns(self, first: int, last: int) -> npt.NDArray[np.floating[Any]]:
        """Logits of the classes from `first` up to `last`, of all rows in their order: (last - first, N)."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Labels (N,) and predictions (N,) of rows in C `classes`; a matrix of them is made as large as it is looked at."""

    labels: Integers
    predictions: Integers
    classes: int

    def count(self, numbers: Integers) -> Integers:
        """Count the rows of each class (C,)."""
        return np.bincount(numbers, minlength=self.classes)

    def matrix(self, most: int) -> Integers:
        """Count the rows by (label, prediction); of more than `most` classes several neighbours share a cell."""
        size = min(self.classes, most)
        label, said = self.labels * size // self.classes, self.predictions * size // self.classes
        return np.bincount(label * size + said, minlength=size**2).reshape(size, size)


@dataclass(frozen=True, slots=True)
class _ClassScores:
    """Precision, recall, F1 and number of rows of each class; a quotient with nothing to divide by is 0."""

    precision: Floats
    recall: Floats
    f1: Floats
    support: Integers


@dataclass(frozen=True, slots=True)
class Roc:
    """The curve of one class against all others, from (0, 0) to (1, 1), and the area below it.

    Of a long curve some evenly spaced points are kept; the area is that below all of them.
    """

    false_positive_rate: Floats
    true_positive_rate: Floats
    auc: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How far confidence can be trusted: rows, mean confidence and accuracy in bins of equal width.

    Attributes:
        ece: expected calibration error: mean of |confidence - accuracy| over the bins, weighted by their rows.
    """

    rows: Integers
    confidence: Floats
    accuracy: Floats
    ece: float


@dataclass(frozen=True, slots=True)
class ClassificationMetrics:
    """All that is known about a classifier's predictions of N rows in C classes.

    Attributes:
        predictions: the most probable class of each row; the lower number where two are equal.
        probability: of the predicted class, for each row.
        confusion: the label and the prediction of each row.
        rocs: class number to its curve; a class that no row or every row has is left out.
        loss: mean cross entropy, in nats.
    """

    predictions: Integers
    probability: Floats
    confusion: Confusion
    scores: _ClassScores
    rocs: Mapping[int, Roc]
    calibration: Calibration
    loss: float

    def numbers(self) -> dict[str, float]:
        """Flat metrics by name. Averages are over the classes that occur, ``auc`` over those that have a curve."""
        occurring = self.confusion.count(self.confusion.labels) + self.confusion.count(self.predictions) > 0
        numbers = {
            "accuracy": float(np.mean(self.confusion.labels == self.predictions)),
            "macro_precision": float(self.scores.precision[occurring].mean()),
            "macro_recall": float(self.scores.recall[occurring].mean()),
            "macro_f1": float(self.scores.f1[occurring].mean()),
            "loss": self.loss,
            "ece": self.calibration.ece,
            "rows": float(len(self.predictions)),
        }
        if self.rocs:
            numbers["auc"] = float(np.mean([roc.auc for roc in self.rocs.values()]))
        return numbers


def measure_classification(logits: Logits, labels: Integers, memory: int = 2**27) -> ClassificationMetrics:
    """Measure logits (N, C) against labels (N), which lie in 0 to C - 1; N is 1 or more.

    Probabilities are held for as many classes at a time as fit into `memory` bytes, one at least.
    """
    rows, classes = len(labels), 0
    predictions = np.empty(rows, np.int64)
    probability, losses, largest, log_sum = (np.empty(rows) for _ in range(4))
    for numbers, block in logits.blocks():
        # Row by row in memory: along another axis a sum is added up in another order, and may differ in its last bit.
        part, classes = np.ascontiguousarray(block.T), len(block)
        largest[numbers], log_sum[numbers] = normaliser = _normaliser(part)
        log_probabilities = _normalise(part, *normaliser)
        probabilities, each = np.exp(log_probabilities), np.arange(len(part))
        predictions[numbers] = said = probabilities.argmax(1)
        probability[numbers] = probabilities[each, said]
        losses[numbers] = -log_probabilities[each, labels[numbers]]
    confusion = Confusion(labels, predictions, classes)
    return ClassificationMetrics(
        predictions=predictions,
        probability=probability,
        confusion=confusion,
        scores=class_scores(confusion),
        rocs=_curves(logits, labels, classes, largest, log_sum, max(1, memory // (8 * rows))),
        calibration=measure_calibration(probability, predictions == labels),
        loss=float(losses.mean()),
    )


def _curves(
    logits: Logits, labels: Integers, classes: int, largest: Floats, log_sum: Floats, at_once: int
) -> dict[int, Roc]:
    """The curves of all classes that have one."""
    curves = {}
    for first in range(0, classes, at_once):
        columns = logits.columns(first, min(first + at_once, classes))
        probabilities = np.exp(_normalise(columns.T, largest, log_sum)).T
        for number, scores in enumerate(probabilities, start=first):
            if (curve := roc_curve(labels == number, scores)) is not None:
                curves[number] = curve
    return curves


def log_softmax(logits: npt.NDArray[np.floating]) -> Floats:
    """Logarithm of the probabilities of each row, in float64."""
    return _normalise(logits, *_normaliser(logits))


def _normaliser(logits: npt.NDArray[np.floating]) -> tuple[Floats, Floats]:
    """The largest logit of each row, and the logarithm of the sum of the exponentials of their distances from it."""
    largest = logits.max(1).astype(np.float64)
    return largest, np.log(np.exp(logits - largest[:, None]).sum(1))


def _normalise(logits: npt.NDArray[np.floating], largest: Floats, log_sum: Floats) -> Floats:
    return (logits - largest[:, None]) - log_sum[:, None]


def class_scores(confusion: Confusion) -> _ClassScores:
    """Return precision, recall and F1 of each class."""
    labels, predictions = confusion.labels, confusion.predictions
    hits, predicted = confusion.count(labels[labels == predictions]), confusion.count(predictions)
    support = confusion.count(labels)
    return _ClassScores(
        precision=_quotient(hits, predicted),
        recall=_quotient(hits, support),
        f1=_quotient(2 * hits, predicted + support),
        support=support,
    )


def roc_curve(positive: npt.NDArray[np.bool_], scores: Floats) -> Roc | None:
    """The curve of a yes-or-no question, equal scores taken together; None if all answers are the same."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return None
    order = np.argsort(-scores, kind="stable")
    last_of_equals = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.concatenate([[0], np.cumsum(positive[order])[last_of_equals]])
    misses = np.concatenate([[0], last_of_equals + 1]) - hits
    # Twice the area, in whole numbers: no rounding before the one division.
    area = int((np.diff(misses) * (hits[1:] + hits[:-1])).sum())
    kept = np.unique(np.linspace(0, len(hits) - 1, _CURVE_POINTS).astype(int))
    return Roc(misses[kept] / negatives, hits[kept] / positives, area / (2 * positives * negatives))


def measure_calibration(probability: Floats, correct: npt.NDArray[np.bool_], bins: int = 15) -> Calibration:
    """Compare the predicted class's probability with how often it was right; bins are closed above."""
    bin_of = np.clip(np.ceil(probability * bins).astype(np.int64) - 1, 0, bins - 1)
    rows = np.bincount(bin_of, minlength=bins)
    confidence = np.bincount(bin_of, probability, minlength=bins)
    right = np.bincount(bin_of, correct, minlength=bins)
    ece = float(np.abs(confidence - right).sum() / len(probability))
    return Calibration(rows, _quotient(confidence, rows), _quotient(right, rows), ece)


def _quotient(above: npt.NDArray[np.number], below: npt.NDArray[np.number]) -> Floats:
    return np.divide(above, below, out=np.zeros(len(below)), where=below > 0)


@dataclass(frozen=True, slots=True)
class RegressionMetrics:
    """All that is known about predictions of N targets, in the target's own units."""

    targets: Floats
    predictions: Floats

    @property
    def residuals(self) -> Floats:
        """Prediction less target, for each row."""
        return self.predictions - self.targets

    def numbers(self) -> dict[str, float]:
        """Flat metrics by name: ``rmse``, ``mae``, ``r2``, ``bias`` (mean residual), ``largest_error`` and ``rows``.

        ``r2`` is left out where all targets are equal: there is nothing to explain.
        """
        residuals = self.residuals
        variation = float(np.square(self.targets - self.targets.mean()).sum())
        numbers = {
            "rmse": float(np.sqrt(np.square(residuals).mean())),
            "mae": float(np.abs(residuals).mean()),
            "bias": float(residuals.mean()),
            "largest_error": float(np.abs(residuals).max()),
            "rows": float(len(residuals)),
        }
        differ = np.ptp(self.targets) > 0  # the mean of equal ones may miss them by its last bit
        return numbers | ({"r2": 1 - float(np.square(residuals).sum()) / variation} if differ else {})


def measure_regression(outputs: npt.NDArray[np.floating], targets: Floats) -> RegressionMetrics:
    """Measure finite outputs (N, 1) against targets (N,); N is 1 or more."""
    return RegressionMetrics(targets.astype(np.float64), outputs[:, 0].astype(np.float64))

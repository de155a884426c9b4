"""Metrics against scikit-learn, which is the reference, and against the corners that it leaves to the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from shared.metrics import Confusion, log_softmax, measure_calibration, measure_classification, roc_curve


@dataclass
class InMemory:
    """Logits (N, C), a few rows and classes at a time."""

    logits: np.ndarray

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for rows in np.array_split(np.arange(len(self.logits)), 1 + len(self.logits) // 7):
            yield rows, self.logits[rows].T

    def columns(self, first: int, last: int) -> np.ndarray:
        return self.logits.T[first:last]


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 60), classes=st.integers(2, 5), coarse=st.booleans())
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_everything_equals_scikit_learn(seed: int, rows: int, classes: int, coarse: bool) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, classes)).round(0 if coarse else 6).astype("float32")  # coarse: many ties
    labels = random.integers(0, classes, rows)
    result = measure_classification(InMemory(logits), labels)
    probabilities = np.exp(log_softmax(logits))
    numbers, said, everything = result.numbers(), probabilities.argmax(1), list(range(classes))

    np.testing.assert_array_equal(
        result.confusion.matrix(10**6), reference.confusion_matrix(labels, said, labels=everything)
    )
    assert numbers["accuracy"] == pytest.approx(reference.accuracy_score(labels, said))
    precision, recall, f1, support = reference.precision_recall_fscore_support(
        labels, said, labels=everything, zero_division=0
    )
    for found, expected in zip(
        (result.scores.precision, result.scores.recall, result.scores.f1, result.scores.support),
        (precision, recall, f1, support),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected)
    assert numbers["macro_f1"] == pytest.approx(reference.f1_score(labels, said, average="macro", zero_division=0))
    assert numbers["loss"] == pytest.approx(reference.log_loss(labels, probabilities, labels=everything), rel=1e-6)
    areas = []
    for number in everything:
        positive = labels == number
        if positive.all() or not positive.any():
            assert number not in result.rocs
            continue
        fpr, tpr, _ = reference.roc_curve(positive, probabilities[:, number], drop_intermediate=False)
        np.testing.assert_allclose(result.rocs[number].false_positive_rate, fpr)
        np.testing.assert_allclose(result.rocs[number].true_positive_rate, tpr)
        areas.append(reference.roc_auc_score(positive, probabilities[:, number]))
        assert result.rocs[number].auc == pytest.approx(areas[-1])
    assert numbers.get("auc") == (pytest.approx(np.mean(areas)) if areas else None)


def test_huge_logits_do_not_overflow() -> None:
    np.testing.assert_allclose(log_softmax(np.array([[1e4, 0.0], [-1e4, -1e4]])), [[0, -1e4], np.log([0.5, 0.5])])


def test_one_row_has_no_curve() -> None:
    assert "auc" not in measure_classification(InMemory(np.array([[1.0, 0.0]])), np.array([0])).numbers()
    assert roc_curve(np.array([True, True]), np.array([0.1, 0.2])) is None


def test_calibration_by_hand() -> None:
    # Ten rows at 0.75 of which six are right, ten at 0.55 of which six are right; bins of 0.1.
    probability = np.repeat([0.75, 0.55], 10)
    correct = np.tile(np.arange(10) < 6, 2)
    found = measure_calibration(probability, correct, bins=10)
    assert found.rows[7] == found.rows[5] == 10
    assert found.accuracy[7] == pytest.approx(0.6)
    assert found.confidence[5] == pytest.approx(0.55)
    assert found.ece == pytest.approx((0.15 + 0.05) / 2)


def test_the_edges_of_the_bins_belong_to_them() -> None:
    assert measure_calibration(np.array([1.0, 0.5, 0.0]), np.array([True, True, False]), bins=2).rows.tolist() == [2, 1]


def test_a_confusion_matrix_is_made_no_larger_than_it_is_looked_at() -> None:
    draw = np.random.default_rng(0)
    confusion = Confusion(draw.integers(0, 32_767, 5000), draw.integers(0, 32_767, 5000), 32_767)
    matrix = confusion.matrix(300)
    assert matrix.shape == (300, 300)
    assert matrix.sum() == 5000
    assert matrix.sum(1).tolist() == np.bincount(confusion.labels * 300 // 32_767, minlength=300).tolist()

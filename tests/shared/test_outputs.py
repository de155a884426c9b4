"""Outputs in files: every row once, whoever wrote it, and metrics that read them piece by piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.metrics import measure_classification
from shared.outputs import OutputParts
from tests.helpers import run_python
from tests.shared.test_metrics import InMemory


def written(folder: Path, outputs: np.ndarray, world_size: int, batch_size: int, file_bytes: int) -> OutputParts:
    parts = OutputParts(folder, "rows", world_size, len(outputs), batch_size)
    for rank in range(world_size):
        assert parts.write(rank, (outputs[rows] for rows in parts.batches(rank)), file_bytes)
    return parts


@given(
    rows=st.integers(1, 70),
    outputs=st.integers(1, 30),
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 20),
    file_bytes=st.sampled_from([1, 500, 2**20]),
)
@settings(max_examples=40, deadline=None)
def test_every_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    outputs: int,
    world_size: int,
    batch_size: int,
    file_bytes: int,
) -> None:
    whole = np.random.default_rng(rows).normal(size=(rows, outputs)).astype("float32")
    parts = written(tmp_path_factory.mktemp("parts"), whole, world_size, batch_size, file_bytes)
    np.testing.assert_array_equal(parts.columns(), whole.T)
    np.testing.assert_array_equal(parts.columns(outputs // 2, outputs), whole.T[outputs // 2 :])
    np.testing.assert_array_equal(np.sort(np.concatenate([numbers for numbers, _ in parts.blocks()])), np.arange(rows))


@pytest.mark.parametrize(("classes", "spread"), [(2, 1.0), (10, 1.0), (129, 0.1)])
def test_the_numbers_are_those_of_all_logits_in_memory(tmp_path: Path, classes: int, spread: float) -> None:
    random = np.random.default_rng(classes)
    labels = random.integers(0, classes, 3000)
    logits = (spread * random.normal(size=(3000, classes)) + 2 * np.eye(classes)[labels]).round(2).astype("float32")
    parts = written(tmp_path, logits, world_size=3, batch_size=64, file_bytes=2**14)
    found, expected = (
        measure_classification(parts, labels, memory=5 * 8 * 3000),
        measure_classification(InMemory(logits), labels),
    )
    np.testing.assert_array_equal(found.predictions, expected.predictions)
    np.testing.assert_array_equal(found.confusion.matrix(99), expected.confusion.matrix(99))
    np.testing.assert_allclose(found.probability, expected.probability, rtol=1e-12)
    assert found.numbers() == pytest.approx(expected.numbers(), rel=1e-12)
    assert found.rocs.keys() == expected.rocs.keys()
    for number, curve in expected.rocs.items():
        assert found.rocs[number].auc == curve.auc
        np.testing.assert_array_equal(found.rocs[number].true_positive_rate, curve.true_positive_rate)
        np.testing.assert_array_equal(found.rocs[number].false_positive_rate, curve.false_positive_rate)


PEAK = """
import sys, tracemalloc, numpy as np
from pathlib import Path
from shared.metrics import measure_classification
from shared.outputs import OutputParts

def measure(name, rows, **given):
    parts = OutputParts(Path(sys.argv[1]) / name, "rows", 1, rows, 250)
    assert parts.write(0, (logits[numbers] for numbers in parts.batches(0)), 2**19)
    tracemalloc.start()
    measure_classification(parts, labels[:rows], **given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak

random = np.random.default_rng(0)
labels = random.integers(0, 250, 15_000)
logits = random.normal(size=(15_000, 250)).astype("float32")
measure("few", 500)  # imports, once
print(measure("all", 15_000, memory=2**19) / logits.nbytes)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_classes(tmp_path: Path) -> None:
    """In a process of its own: what threads of other tests allocate meanwhile would count too."""
    assert float(run_python(PEAK, tmp_path).stdout) < 1  # it was six times as much


def test_numbers_that_are_not_finite_end_the_writing(tmp_path: Path) -> None:
    parts = OutputParts(tmp_path, "rows", 1, 3, 1)
    assert not parts.write(0, iter([np.ones((1, 2)), np.array([[1, np.inf]]), np.ones((1, 2))]))

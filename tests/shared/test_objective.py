"""Objectives and metrics of a regression, against scikit-learn and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from shared.metrics import measure_regression
from shared.training.torch.objective import RegressionObjective


@given(seed=st.integers(0, 1000), rows=st.integers(2, 50), scale=st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=40, deadline=None)
def test_everything_equals_scikit_learn(seed: int, rows: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    targets = random.normal(5, 2, rows) * scale
    outputs = (targets[:, None] + random.normal(size=(rows, 1)) * scale).astype("float32")
    said = outputs[:, 0].astype("float64")
    expected = {
        "rmse": reference.root_mean_squared_error(targets, said),
        "mae": reference.mean_absolute_error(targets, said),
        "r2": reference.r2_score(targets, said),
    }
    numbers = measure_regression(outputs, targets).numbers()
    assert {name: numbers[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert numbers["largest_error"] == reference.max_error(targets, said)

    # The same over ranks: sums of parts.
    objective = RegressionObjective(float(targets.mean()), float(targets.std()))
    parts = [slice(0, rows // 2), slice(rows // 2, None)]
    measured = [objective.measure(torch.from_numpy(outputs[p]), torch.from_numpy(targets[p])) for p in parts]
    found = objective.metrics(torch.stack(measured).sum(0).tolist(), rows)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    whole = objective.loss(torch.from_numpy(outputs), torch.from_numpy(targets))
    assert found["loss"] == pytest.approx(float(whole), rel=1e-5)


def test_targets_that_are_all_equal_explain_nothing() -> None:
    for value in (2.0, 0.1):  # the mean of the latter is not 0.1
        assert "r2" not in measure_regression(np.ones((7, 1), "float32"), np.full(7, value)).numbers()
    assert "r2" not in RegressionObjective(2.0, 0.0).metrics([3.0, 3.0, 0.0, 0.0], 3)
    around = np.full(1000, 0.1) - 0.7
    sums = [3.0, 3.0, float(around.sum()), float(np.square(around).sum())]
    assert "r2" not in RegressionObjective(0.7, 1.0).metrics(sums, 1000)

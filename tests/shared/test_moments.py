"""Mean and deviation of rows, chunk by chunk."""

from __future__ import annotations

import numpy as np

from shared.data import Statistics
from shared.data.write.moments import Moments


def test_moments_merge_to_mean_and_deviation() -> None:
    values = np.random.default_rng(0).normal([3, -5, 100], [1, 2, 0.5], size=(50, 4, 3)).astype("float32")
    merged = Moments.merge([Moments.of(values[:7]), Moments.of(values[7:20]), Moments.of(values[20:])])
    statistics = merged.statistics()
    flat = values.reshape(-1, 3).astype("float64")
    np.testing.assert_allclose(statistics.mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics.std, flat.std(0), rtol=1e-9)


def test_a_constant_channel_has_no_deviation() -> None:
    for value in (0.1, np.float32(-7.3), np.uint8(77)):
        rows = np.full((700, 2, 1), value)
        merged = Moments.merge([Moments.of(rows[:7]), Moments.of(rows[7:])]).statistics()
        assert merged == Moments.of(rows).statistics() == Statistics((float(value),), (0.0,)), "it would be divided by"


def test_values_far_from_0_keep_their_deviation() -> None:
    times = 1.7e12 + np.random.default_rng(0).normal(0, 1000, (2000, 1))  # in milliseconds, as of a target
    merged = Moments.merge([Moments.of(times[:300]), Moments.of(times[300:])]).statistics()
    np.testing.assert_allclose((merged.mean[0], merged.std[0]), (times.mean(), times.std()), rtol=1e-9)

"""From sums over all rows to metrics, by task: what the objectives of torch and TensorFlow have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

_ROUNDING = 1e-12
"""Part of the targets' second moment that may be left of the variation of equal ones."""


class TaskSums(ABC):
    """From sums over rows, which add up over ranks, to the metrics of a task."""

    sums: int
    """How many an objective's ``measure`` gives."""

    @abstractmethod
    def metrics(self, sums: Sequence[float], rows: int) -> dict[str, float]:
        """Metrics by name, from the sums over all ``rows``; ``loss`` is the mean of what is minimised."""


class ClassificationSums(TaskSums):
    """Sums of cross entropies, in nats, and of right answers; labels are smoothed only in what is minimised."""

    sums = 2

    def __init__(self, label_smoothing: float = 0.0) -> None:
        self._smoothing = label_smoothing

    def metrics(self, sums: Sequence[float], rows: int) -> dict[str, float]:
        """``loss`` and ``accuracy``."""
        return {"loss": sums[0] / rows, "accuracy": sums[1] / rows}


class RegressionSums(TaskSums):
    """Sums of squared and absolute errors, and the targets' first and second moment around the train split's mean.

    `std` is the target's standard deviation over the train split; 0 counts as 1.
    """

    sums = 4

    def __init__(self, mean: float, std: float) -> None:
        self._mean, self._std = mean, std or 1.0

    def metrics(self, sums: Sequence[float], rows: int) -> dict[str, float]:
        """``loss``, ``rmse``, ``mae`` and, where the targets differ, ``r2``."""
        squares, absolutes, first, second = sums
        variation = second - first * first / rows
        numbers = {
            "loss": squares / rows / self._std**2,
            "rmse": math.sqrt(squares / rows),
            "mae": absolutes / rows,
        }
        differ = variation > _ROUNDING * second
        return numbers | ({"r2": 1 - squares / variation} if differ else {})

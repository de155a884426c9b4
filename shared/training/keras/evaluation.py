"""Exact loss and metrics over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

from datetime import timedelta

import keras
import numpy as np
import tensorflow as tf

from shared.data import Dataset
from shared.distributed import World
from shared.training.core.batch_plan import BatchPlan
from shared.training.keras.batch_norm import share_statistics
from shared.training.keras.objective import objective_of


class SplitEvaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    Args:
        data: the dataset.
        split: its part that is measured.
        world: the ranks, each of which takes every n-th row.
        plan: how much fits into one pass.
        timeout: how long the ranks wait for each other.
        alone: whether rank 0 measures by itself, because the others compute for it.
    """

    def __init__(
        self,
        data: Dataset,
        split: str,
        world: World,
        plan: BatchPlan,
        timeout: timedelta | None,
        *,
        alone: bool = False,
    ) -> None:
        self._world, self._alone, self._objective = world, alone, objective_of(data.index)
        self._timeout = timeout
        self._rows_per_pass = 4 * plan.rows_per_pass  # no activations are kept, so more fit than in training
        self._rows = data.index.rows(split)
        self._split = data.split(split) if self._rows else None
        self._mine = np.arange(0, self._rows) if alone else np.arange(world.rank, self._rows, world.world_size)

    def measure(self, model: keras.Model) -> dict[str, float]:
        """Compute mean loss and metrics, summed in float64; see `TrainingObjective` for their names.

        What is measured is the model that rank 0 saves.
        """
        if self._split is None:
            return {}
        share_statistics(model, self._world)
        sums = [0.0] * self._objective.sums
        for start in range(0, len(self._mine), self._rows_per_pass):
            arrays = self._split.take(self._mine[start : start + self._rows_per_pass])
            found = self._objective.measure(_outputs(model, arrays["x"]), arrays["y"])
            sums = [one + other for one, other in zip(sums, found, strict=True)]
        if not self._alone:
            sums = list(self._world.sum(sums, "validation", self._timeout))
        return self._objective.metrics(sums, self._rows)


@tf.function
def _outputs(model: keras.Model, rows: object) -> tf.Tensor:
    """As a graph, once for each number of rows: layer by layer a small model takes six times as long."""
    return model(rows, training=False)

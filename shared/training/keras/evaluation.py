"""Exact loss and metrics over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from shared.data import Dataset
from shared.distributed import World
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.stopping import StopAgreement
from shared.training.keras.objective import objective_of
from shared.training.keras.replicas import count_replicas, share_statistics, spread_rows, strategy_of


@dataclass
class SplitEvaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    Each rank takes every n-th row, on all its GPUs; `alone`, rank 0 takes all, because the others compute for it.
    """

    data: Dataset
    split: str
    world: World
    plan: BatchPlan
    timeout: timedelta | None
    alone: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        self._objective, self._rows = objective_of(self.data.index), self.data.index.rows(self.split)
        self._split = self.data.split(self.split).for_training() if self._rows else None

    def measure(self, model: keras.Model, stop: StopAgreement | None = None) -> dict[str, float] | None:
        """Compute mean loss and metrics, summed in float64; see `TrainingObjective` for their names.

        What is measured is the model that rank 0 saves. All ranks leave off, and give None, if one is asked to `stop`.
        """
        if self._split is None:
            return {}
        share_statistics(model, self.world)
        first, step = (0, 1) if self.alone else (self.world.rank, self.world.world_size)
        mine = np.arange(first, self._rows, step)
        size = 4 * self.plan.rows_per_pass  # no activations are kept, so more fit than in training
        sums, strategy, left_off = [0.0] * self._objective.sums, strategy_of(self.world), False
        for start in range(0, len(mine), size):
            arrays = self._split.take(mine[start : start + size])
            found = self._objective.measure(replica_outputs(model, arrays["x"], strategy), arrays["y"])
            sums = [one + other for one, other in zip(sums, found, strict=True)]
            if left_off := stop is not None and stop.is_asked():
                break
        sums.append(float(left_off))
        if not self.alone:
            sums = list(self.world.sum(sums, "validation", self.timeout))
        *found, ranks_off = sums
        return None if ranks_off else self._objective.metrics(found, self._rows)


def replica_outputs(model: keras.Model, rows: npt.NDArray[Any], strategy: Any) -> tf.Tensor:
    """Compute the outputs for rows (N, ...) on all GPUs of this process, in the order of the rows: (N, outputs).

    Rows that are missing for equal parts are filled up with the last one, and what comes out for them is left out.
    """
    replicas = count_replicas(strategy)
    if replicas == 1:
        return _outputs(model, rows)
    filled = np.concatenate([rows, np.repeat(rows[-1:], -len(rows) % replicas, axis=0)])
    parts = strategy.experimental_local_results(_replicated(model, spread_rows(strategy, filled), strategy))
    return tf.concat([part.numpy() for part in parts], 0)[: len(rows)]  # they lie on different GPUs


@tf.function
def _outputs(model: keras.Model, rows: object) -> tf.Tensor:
    """As a graph, once for each number of rows: layer by layer a small model takes six times as long."""
    return model(rows, training=False)


@tf.function
def _replicated(model: keras.Model, rows: object, strategy: Any) -> Any:
    return strategy.run(lambda part: model(part, training=False), args=(rows,))

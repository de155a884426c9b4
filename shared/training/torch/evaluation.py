"""Exact loss and metrics over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from shared.data import Dataset
from shared.distributed import World
from shared.settings.running import LoaderSettings, TimeoutSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.feed import RowReader
from shared.training.torch.objective import objective_of
from shared.training.torch.optimization import TrainingPrecision


class SplitEvaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    Each rank takes every n-th row: a sampler that pads to equal parts would count some rows twice.
    """

    def __init__(
        self,
        data: Dataset,
        split: str,
        world: World,
        precision: TrainingPrecision,
        plan: BatchPlan,
        loader: LoaderSettings,
        timeouts: TimeoutSettings,
    ) -> None:
        self._world, self._precision, self._objective = world, precision, objective_of(data.index, split=split)
        self._timeout = timeouts.step
        self._rows_per_pass = 4 * plan.rows_per_pass  # no activations are kept, so more fit than in training
        rows = data.index.rows(split)
        self._reader = RowReader(data.split(split), world.device, loader) if rows else None
        self._mine = np.arange(world.rank, rows, world.world_size)

    def measure(self, module: nn.Module) -> dict[str, float]:
        """Compute mean loss and metrics of the unwrapped module, summed in float64; `TrainingObjective` names them.

        What is measured is the model that rank 0 saves.
        """
        if self._reader is None:
            return {}
        share_statistics(module, self._world)
        sums = torch.zeros(self._objective.sums, dtype=torch.float64, device=self._world.device)
        module.eval()
        with torch.inference_mode():
            for start in range(0, len(self._mine), self._rows_per_pass):
                rows, y = self._reader.take(self._mine[start : start + self._rows_per_pass])
                with self._precision.autocast():
                    outputs = module(rows).to(self._precision.dtype)
                sums += self._objective.measure(outputs, y)
        module.train()
        return self._objective.metrics(
            self._world.sum(sums.tolist(), "validation", self._timeout), self._reader.split.rows
        )

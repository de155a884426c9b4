"""Exact loss and metrics of a model whose parameters the ranks hold together: all of them compute in step."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from shared.data import Dataset
from shared.distributed import World
from shared.settings.running import LoaderSettings, TimeoutSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.batch_norm import share_statistics
from shared.training.torch.evaluation import SplitEvaluation
from shared.training.torch.optimization import TrainingPrecision


class EvenEvaluation(SplitEvaluation):
    """Measures a model on a split, with the same number of passes on every rank.

    A rank whose rows are used up computes on rows that do not count: the others wait for its part of the parameters.

    Args:
        data: the dataset.
        split: its part that is measured.
        world: the ranks.
        precision: its type is that in which outputs are measured.
        plan: how many rows a pass has in training; here it is up to four times as many.
        loader: how rows are copied.
        timeouts: how long ranks wait for each other.
        share: which of how many equal parts of the rows is this rank's; None: each rank has one of its own.
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
        share: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(data, split, world, precision, plan, loader, timeouts)
        part, self._parts = share or (world.rank, world.world_size)
        self._mine = np.arange(part, data.index.rows(split), self._parts)

    def measure(self, module: nn.Module) -> dict[str, float]:
        """Compute mean loss and metrics, summed in float64; see `TrainingObjective` for their names."""
        if self._reader is None:
            return {}
        share_statistics(module, self._world)
        rows = self._reader.split.rows
        most = math.ceil(rows / self._parts)
        size = min(self._rows_per_pass, most)
        sums = torch.zeros(self._objective.sums, dtype=torch.float64, device=self._world.device)
        module.eval()
        with torch.no_grad():  # ZeRO keeps some parameters whole from here on: they must not be of inference mode
            for start in range(0, most, size):
                mine = self._mine[start : start + size]
                x, y = self._reader.take(np.pad(mine, (0, size - len(mine))))
                outputs = self._outputs(module, x)
                if outputs is not None and len(mine):
                    sums += self._objective.measure(outputs[: len(mine)].to(self._precision.dtype), y[: len(mine)])
        module.train()
        return self._objective.metrics(self._world.sum(sums.tolist(), "validation", self._timeout), rows)

    def _outputs(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor | None:
        """Compute the outputs for some rows; None on a rank whose outputs do not count."""
        outputs: torch.Tensor = module(rows)
        return outputs

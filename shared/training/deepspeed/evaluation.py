"""Exact loss and metrics of a model whose parameters the ranks hold together: all of them compute in step."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from shared.training.evaluation import Evaluation


class EvenEvaluation(Evaluation):
    """Measures a model on a split, with the same number of passes on every rank.

    A rank whose rows are used up computes on rows that do not count: the others wait for its part of the parameters.
    """

    def of(self, module: nn.Module) -> dict[str, float]:
        """Compute mean loss and metrics, summed in float64; see `Objective` for their names."""
        if self._reader is None:
            return {}
        for buffer in module.buffers():  # statistics of rank 0 count, as with DistributedDataParallel
            dist.broadcast(buffer, 0)
        rows, parts = self._reader.split.rows, self._world.world_size
        size = min(self._rows_per_pass, math.ceil(rows / parts))
        sums = torch.zeros(self._objective.sums, dtype=torch.float64, device=self._world.device)
        module.eval()
        with torch.no_grad():  # ZeRO keeps some parameters whole from here on: they must not be of inference mode
            for start in range(0, math.ceil(rows / parts), size):
                mine = self._mine[start : start + size]
                x, y = self._reader.take(np.pad(mine, (0, size - len(mine))))
                outputs = module(x)[: len(mine)].to(self._precision.dtype)
                if len(mine):
                    sums += self._objective.measure(outputs, y[: len(mine)])
        module.train()
        return self._objective.metrics(self._world.sum(sums.tolist(), "validation", self._timeout), rows)

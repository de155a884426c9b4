"""Exact loss and metrics of a model that lies in parts: each row counts once, and all ranks compute in step."""

from __future__ import annotations

import argparse
import math
from datetime import timedelta

import numpy as np
import torch
from torch.distributed.fsdp import FSDPModule

from shared.data import Dataset
from shared.distributed import World
from shared.models import Decoder
from shared.training.arguments import BatchPlan
from shared.training.data import Reader
from shared.training.objective import objective_of
from shared.training.sharded.mesh import Mesh
from shared.training.sharded.pipeline import forward_through


class ShardedEvaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    A rank whose rows are used up computes on rows that do not count: the others wait for its part of the model.
    """

    def __init__(
        self,
        data: Dataset,
        split: str,
        world: World,
        mesh: Mesh,
        dtype: torch.dtype,
        plan: BatchPlan,
        args: argparse.Namespace,
    ) -> None:
        self._world, self._mesh, self._dtype = world, mesh, dtype
        self._objective = objective_of(data.index, split=split)
        self._timeout = timedelta(minutes=args.step_timeout)
        rows, parts = data.index.rows(split), mesh.layout.data_parallel
        self._rows_per_pass = min(4 * plan.rows_per_pass, max(1, math.ceil(rows / parts)))  # no activations are kept
        self._passes = math.ceil(rows / (parts * self._rows_per_pass))
        self._reader = Reader(data.split(split), world.device, args) if rows else None
        self._mine = np.arange(mesh.data_rank, rows, parts)

    def of(self, module: Decoder) -> dict[str, float]:
        """Compute mean loss and metrics, summed in float64; see `Objective` for their names."""
        if self._reader is None:
            return {}
        sums = torch.zeros(self._objective.sums, dtype=torch.float64, device=self._world.device)
        counts = self._mesh.is_last_stage and self._mesh.tensor_rank == 0  # its neighbours have the same outputs
        with torch.no_grad():
            for number in range(self._passes):
                start = number * self._rows_per_pass
                mine = self._mine[start : start + self._rows_per_pass]
                rows, y = self._reader.take(np.pad(mine, (0, self._rows_per_pass - len(mine))))
                outputs = forward_through(module, self._mesh, rows, self._dtype)
                if counts and outputs is not None and len(mine):
                    sums += self._objective.measure(outputs[: len(mine)], y[: len(mine)])
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # what no backward pass follows stays whole otherwise
        total = self._world.sum(sums.tolist(), "validation", self._timeout)
        return self._objective.metrics(total, self._reader.split.rows)

"""Exact loss and metrics of a model that lies in parts: each row counts once, and all ranks compute in step."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderModel
from shared.settings.running import LoaderSettings, TimeoutSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.fsdp.mesh import RankMesh
from shared.training.fsdp.pipeline_parallel import forward_through
from shared.training.torch.even_evaluation import EvenEvaluation
from shared.training.torch.optimization import TrainingPrecision


class ShardedEvaluation(EvenEvaluation):
    """Measures a decoder on a split, through all its stages; the data-parallel ranks have different rows.

    Args:
        data: the dataset.
        split: its part that is measured.
        world: the ranks.
        precision: its type is that in which outputs are measured.
        plan: how many rows a pass has in training.
        loader: how rows are copied.
        timeouts: how long ranks wait for each other.
        mesh: this rank's place among the parts.
        compute: type of what the stages hand on.
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
        mesh: RankMesh,
        compute: torch.dtype,
    ) -> None:
        share = mesh.data_rank, mesh.layout.data_parallel
        super().__init__(data, split, world, precision, plan, loader, timeouts, share)
        self._mesh, self._compute = mesh, compute

    def measure(self, module: nn.Module) -> dict[str, float]:
        """Compute mean loss and metrics, summed in float64; see `TrainingObjective` for their names."""
        numbers = super().measure(module)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # what no backward pass follows stays whole otherwise
        return numbers

    def _outputs(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor | None:
        """Compute the logits on the last stage, of whose tensor-parallel neighbours the first one's count."""
        outputs = forward_through(cast("DecoderModel", module), self._mesh, rows, self._compute)
        return outputs if self._mesh.tensor_rank == 0 else None

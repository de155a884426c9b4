"""Exact loss and metrics of a model that lies in parts: each row counts once, and all ranks compute in step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from shared.models import DecoderModel
from shared.training.core.stopping import StopAgreement
from shared.training.fsdp.mesh import RankMesh
from shared.training.fsdp.pipeline_parallel import forward_through
from shared.training.torch.evaluation import EvenEvaluation


@dataclass
class ShardedEvaluation(EvenEvaluation):
    """Measures a decoder on a split, through all its stages, which hand on what is of the type `compute`.

    The data-parallel ranks have different rows.
    """

    mesh: RankMesh
    compute: torch.dtype

    def measure(self, module: nn.Module, stop: StopAgreement | None = None) -> dict[str, float] | None:
        """Compute mean loss and metrics, summed in float64; see `SplitEvaluation`."""
        numbers = super().measure(module, stop)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # what no backward pass follows stays whole otherwise
        return numbers

    def _share(self) -> tuple[int, int]:
        return self.mesh.data_rank, self.mesh.layout.data_parallel

    def _outputs(self, module: nn.Module, rows: torch.Tensor) -> torch.Tensor | None:
        """Compute the logits on the last stage, of whose tensor-parallel neighbours the first one's count."""
        outputs = forward_through(cast("DecoderModel", module), self.mesh, rows, self.compute)
        return outputs if self.mesh.tensor_rank == 0 else None

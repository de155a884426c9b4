"""Pipeline parallelism: the stages of a decoder compute on microbatches one after the other, at the same time."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from shared.models import DecoderModel, ModelCard
from shared.settings.sharding import ParallelSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.fsdp.mesh import PIPELINE, RankMesh
from shared.training.torch.feed import TensorBatch
from shared.training.torch.meter import LossMeter
from shared.training.torch.objective import TrainingObjective

_SCHEDULES = MappingProxyType({"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B})


class PipelineStep:
    """Runs this rank's stage of a training step: its microbatches are the accumulation steps.

    `dtype` is that of what the stages hand on.
    """

    def __init__(
        self,
        module: DecoderModel,
        mesh: RankMesh,
        dtype: torch.dtype,
        plan: BatchPlan,
        objective: TrainingObjective,
        card: ModelCard,
        parallel: ParallelSettings,
    ) -> None:
        self._mesh, self._passes, length = mesh, plan.accumulation_steps, card.sequence_length
        rows, settings = plan.rows_per_pass, module.settings
        self._separates = settings.separator >= 0
        between = torch.empty(rows, length // mesh.layout.tensor_parallel, settings.width, dtype=dtype, device="meta")
        tokens = torch.empty(rows, length, dtype=torch.int64, device="meta")
        logits = torch.empty(rows, length, settings.vocabulary, dtype=dtype, device="meta")
        # The shapes are given, so that the stages need not tell each other, which they would by pickling them.
        stage = PipelineStage(
            module,
            mesh.stage,
            mesh.layout.pipeline_parallel,
            torch.device(mesh.devices.device_type),
            input_args=tokens if mesh.is_first_stage else between.requires_grad_(),
            output_args=(logits if mesh.is_last_stage else between).requires_grad_(),
            group=mesh.devices[PIPELINE].get_group(),
        )
        self._schedule = _SCHEDULES[parallel.pipeline_schedule](stage, self._passes, loss_fn=objective.loss)

    def add_gradients(self, batch: TensorBatch, meter: LossMeter) -> None:
        """Add up the gradients of the mean loss over the batch; the last stage tells the loss."""
        rows, y = (tensor.contiguous() for tensor in batch)  # torch 2.10 compares strides, and these are parts of a row
        losses: list[torch.Tensor] = []
        # A later stage has read the same rows, and makes its mask of them.
        named: dict[str, Any] = {"tokens": rows} if self._separates and not self._mesh.is_first_stage else {}
        self._schedule.step(
            *([rows] if self._mesh.is_first_stage else []),
            **named,
            target=y if self._mesh.is_last_stage else None,
            losses=losses if self._mesh.is_last_stage else None,
            return_outputs=False,
        )
        for loss in losses:  # the meter takes the mean over all ranks, and only those of the last stage have a loss
            meter.add(loss / self._passes * self._mesh.layout.pipeline_parallel)


def forward_through(
    module: DecoderModel, mesh: RankMesh, rows: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor | None:
    """Compute the logits of tokens (N, L), stage after stage, without gradients; None but on the last stage."""
    x = rows
    if not mesh.is_first_stage:
        shape = (rows.shape[0], rows.shape[1] // mesh.layout.tensor_parallel, module.settings.width)
        x = torch.empty(shape, dtype=dtype, device=rows.device)
        dist.recv(x, mesh.neighbour(-1))
    x = module(x, rows)
    if mesh.is_last_stage:
        return x
    dist.send(x.contiguous(), mesh.neighbour(1))
    return None

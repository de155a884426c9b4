"""Our LightningModule: a model of the zoo, trained as train_ddp trains it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from shared.settings.training import OptimizerSettings
from shared.training.core.schedule import LearningSchedule
from shared.training.torch.buckets import settle_buckets
from shared.training.torch.feed import TensorBatch
from shared.training.torch.objective import TrainingObjective
from shared.training.torch.optimization import TrainingPrecision, make_optimizer


class ZooModule(LightningModule):
    """A model of ours with train_ddp's loss, optimizer and learning rates."""

    def __init__(
        self, module: nn.Module, objective: TrainingObjective, schedule: LearningSchedule, settings: OptimizerSettings
    ) -> None:
        super().__init__()
        self.module, self._objective, self._schedule, self._settings = module, objective, schedule, settings
        # Statistics never change; left in, they would be sent before each forward pass.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # noqa: SLF001
            self, ["module.mean", "module.std"]
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Give the outputs for raw rows."""
        outputs: torch.Tensor = self.module(rows)
        return outputs

    def training_step(self, batch: TensorBatch, batch_idx: int) -> torch.Tensor:
        """Give the mean loss of a pass; Lightning divides it by the number of passes."""
        rows, y = batch
        return self._objective.loss(self(rows), y)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Give the optimizer, and a scheduler that sets each step's learning rate to the schedule's."""
        optimizer, schedule = make_optimizer(self.module, self._settings), self._schedule
        for group in optimizer.param_groups:
            group["lr"] = 1.0  # LambdaLR multiplies by it
        scheduler = LambdaLR(optimizer, lambda step: schedule(step))  # noqa: PLW0108  # it saves objects
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@dataclass(frozen=True, slots=True)
class OptimizerRate(LearningSchedule):
    """The learning rate that the first optimizer of a user's module has, for the reports; the schedule is not used.

    Attributes:
        module: Lightning has moved its schedulers on when a step is reported, so it is that of the step to come.
    """

    module: LightningModule

    def __call__(self, step: int) -> float:
        """Learning rate now; 0 for a module without an optimizer."""
        found = self.module.optimizers(use_pl_optimizer=False)
        optimizers = found if isinstance(found, list) else [found]
        return float(optimizers[0].param_groups[0]["lr"]) if optimizers else 0.0


class SettledBuckets(Callback):
    """Settles DDP's buckets before the first step, with rows on the device; see ``settle_buckets``."""

    def __init__(self, rows: torch.Tensor, precision: TrainingPrecision) -> None:
        self._rows, self._precision = rows, precision

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make two passes that change nothing."""
        settle_buckets(trainer.strategy.model or pl_module, pl_module, self._rows, self._precision)

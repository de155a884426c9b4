"""train_lightning's counterpart: a LightningModule and Trainer.fit, with what slows it down switched off."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from loops.hand_parts import Rows, adamw, batches, held_rows, mean_and_deviation, rate_of
from loops.step_clock import StepClock
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from shared.data import Dataset
from shared.distributed import World
from shared.models import build_network
from shared.settings.trainer import RowsTrainerSettings


class HandModule(LightningModule):
    """A network with its loss and optimizer; `reports` says whether it logs its loss."""

    def __init__(self, settings: RowsTrainerSettings, data: Dataset, steps: int, *, reports: bool) -> None:
        super().__init__()
        shape = data.index.arrays["x"].shape
        torch.manual_seed(settings.seed)
        self.net = build_network(settings.network.architecture, tuple(shape), 10, None)
        self.mean, self.std = mean_and_deviation(data)
        self.given, self.rate, self.reports = settings, rate_of(settings, steps), reports

    def training_step(self, batch: Rows, batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        del batch_idx
        x, y = batch
        rows = ((x - self.mean) / self.std).movedim(-1, 1)
        loss = functional.cross_entropy(self.net(rows), y, label_smoothing=self.given.optimizer.label_smoothing)
        if self.reports:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW, and the learning rate of each step."""
        optimizer, peak = adamw(self.net, self.given), self.given.optimizer.learning_rate
        scheduler = LambdaLR(optimizer, lambda step: self.rate(step) / peak)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class HeldBatches:
    """Batches of rows that are in memory, for Lightning."""

    def __init__(self, held: Rows, size: int, world: World) -> None:
        self._held, self._size, self._world = held, size, world

    def __len__(self) -> int:
        return len(self._held[0]) // self._size

    def __iter__(self) -> Iterator[Rows]:
        return batches(self._held, self._size, self._world)


class ClockCallback(Callback):
    """Tells the clock of each step."""

    def __init__(self, clock: StepClock) -> None:
        self._clock = clock

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Count it."""
        self._clock.end_step()


def train_by_hand(
    settings: RowsTrainerSettings, data: Dataset, world: World, clock: StepClock, *, reports: bool = True
) -> None:
    """Train for an epoch, and write the loss of every few steps to a file."""
    loader = HeldBatches(held_rows(data), settings.batch.batch_size, world)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            devices=world.world_size,
            accelerator=world.device.type,
            precision="bf16-mixed" if settings.precision.precision == "bf16" else "32-true",
            strategy="auto" if world.world_size == 1 else DDPStrategy(gradient_as_bucket_view=True),
            max_epochs=1,
            gradient_clip_val=settings.optimizer.clip_norm,
            callbacks=[ClockCallback(clock)],
            logger=CSVLogger(folder) if reports else False,
            log_every_n_steps=settings.reports.log_every,
            use_distributed_sampler=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(HandModule(settings, data, len(loader), reports=reports), loader)


def train_bare(settings: RowsTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """The same without a report of the loss, which our trainer makes."""
    train_by_hand(settings, data, world, clock, reports=False)

"""A training whose loop is in the hands of another's Trainer: our order of rows, and when it may be saved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from shared.distributed import World
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition
from shared.training.torch.feed import BatchFeed, TensorBatch

PrepareRows = Callable[[torch.Tensor], torch.Tensor]
"""Makes of raw rows what a module takes."""


@dataclass
class EpochPasses:
    """The passes of an epoch as what others take for a dataloader: no sampler, no padding, no processes.

    They go on from the run's position, in an order that the number of ranks does not change.
    """

    feed: BatchFeed
    plan: BatchPlan
    at: TrainingPosition
    prepare: PrepareRows | None = None

    def __len__(self) -> int:
        return self.feed.steps_per_epoch * self.plan.accumulation_steps

    def __iter__(self) -> Iterator[TensorBatch]:
        for batch in self.feed.epoch(self.at.epoch, self.at.batch):
            for rows, y in zip(*(tensor.split(self.plan.rows_per_pass) for tensor in batch), strict=True):
                yield (rows if self.prepare is None else self.prepare(rows)), y

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the position is in the checkpoint already. Without this Lightning warns that it is not."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing, likewise."""


class DeferringSaver(CheckpointSaver):
    """Lets a checkpoint that is due at the last step of an epoch wait for the epoch's end.

    A Trainer that went on from that step would take an epoch without a batch for the end of the training, or would
    begin the next one and leave out the validation.
    """

    def __init__(self, plan: CheckpointPlan, world: World, steps_per_epoch: int) -> None:
        super().__init__(plan, world)
        self.steps_per_epoch, self._due, self._defers = steps_per_epoch, False, True

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint now or at the epoch's end; every rank calls this at the same step."""
        self._due = self._defers and position.batch == self.steps_per_epoch
        if not self._due:
            self._write(position)

    def save_if_due(self, position: TrainingPosition) -> None:
        """Write the checkpoint that waited for the end of the epoch."""
        if self._due:
            self.save(position)

    def stop_deferring(self, position: TrainingPosition) -> None:
        """Write what waits, and from now on all at once: the epoch's validation has begun and is left off."""
        self._defers = False
        self.save_if_due(position)

    @abstractmethod
    def _write(self, position: TrainingPosition) -> None:
        """Write a checkpoint; every rank is here."""

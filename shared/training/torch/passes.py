"""A training whose loop is in the hands of another's Trainer: our order of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from shared.training.core.batch_plan import BatchPlan
from shared.training.core.position import TrainingPosition
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

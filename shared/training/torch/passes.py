"""Our order of rows as what the Trainers of others take for a dataloader: no sampler, no padding, no processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from shared.training.core.batch_plan import BatchPlan
from shared.training.core.position import TrainingPosition
from shared.training.torch.feed import BatchFeed, TensorBatch

PrepareRows = Callable[[torch.Tensor], torch.Tensor]
"""Makes of raw rows what a module takes."""


class EpochPasses:
    """The passes of an epoch, from the run's position on, in an order that the number of ranks does not change.

    Args:
        feed: the rank's part of each global batch.
        plan: how many rows a pass has.
        at: the run's position.
        prepare: what is done to the rows.
    """

    def __init__(
        self, feed: BatchFeed, plan: BatchPlan, at: TrainingPosition, prepare: PrepareRows | None = None
    ) -> None:
        self._feed, self._plan, self._at, self._prepare = feed, plan, at, prepare

    def __len__(self) -> int:
        return self._feed.steps_per_epoch * self._plan.accumulation_steps

    def __iter__(self) -> Iterator[TensorBatch]:
        for batch in self._feed.epoch(self._at.epoch, self._at.batch):
            for rows, y in zip(*(tensor.split(self._plan.rows_per_pass) for tensor in batch), strict=True):
                yield (rows if self._prepare is None else self._prepare(rows)), y

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the position is in the checkpoint already. Without this Lightning warns that it is not."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing, likewise."""

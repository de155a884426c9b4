"""Rows of a split as what Lightning takes for a dataloader of validation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shared.distributed import World
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.feed import RowReader, TensorBatch
from shared.training.torch.passes import PrepareRows


class ValidationPasses:
    """Rows of a split for validation: each counts once, and every rank has as many batches as the others.

    Args:
        reader: of the split.
        plan: how many rows a pass has in training; here it is four times as many, as no activations are kept.
        world: every n-th row is this rank's.
        prepare: what is done to the rows.
    """

    def __init__(self, reader: RowReader, plan: BatchPlan, world: World, prepare: PrepareRows) -> None:
        self._reader, self._prepare = reader, prepare
        count = reader.split.rows
        mine, fewest = np.arange(world.rank, count, world.world_size), count // world.world_size
        most = -(-count // world.world_size)
        self._parts = np.array_split(mine, max(1, min(fewest, -(-most // (4 * plan.rows_per_pass)))))

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[TensorBatch]:
        for part in self._parts:
            rows, y = self._reader.take(part)
            yield self._prepare(rows), y

"""Batches of one rank as tensors: from memory where the data is small, read ahead by threads where it is not.

Not by tf.data: rows that Python chooses and NumPy reads pass through its graph twice, which costs 0.9 ms of the
processor's time for each batch, and reading 64 small rows 0.04.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from shared.data import Split
from shared.settings.running import LoaderSettings
from shared.training.augmentation.batches import BatchAugmentation, BatchPlace
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.read_ahead import Asked, rank_batches, read_ahead
from shared.training.core.time_split import DataTimer

TensorBatch = tuple[tf.Tensor, tf.Tensor]
"""Raw rows (N, *shape) and their labels (N,), int64, or their targets (N,), float64, as tensors; of mixed pictures the
labels are shares of the classes (N, classes), float32."""

NamedArrays = Mapping[str, npt.NDArray[Any]]


class BatchFeed:
    """The rank's part of each global batch of an epoch, in an order that the number of ranks does not change.

    `timer` tells how long was waited for the batches.
    """

    def __init__(
        self,
        split: Split,
        plan: BatchPlan,
        rank: int,
        loader: LoaderSettings,
        seed: int,
        augmentation: BatchAugmentation | None = None,
    ) -> None:
        self._split, self._plan, self._rank, self._loader, self._seed = split.for_training(), plan, rank, loader, seed
        self._augmentation = augmentation
        self.steps_per_epoch = split.rows // plan.batch_size
        self.timer = DataTimer()

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TensorBatch]:
        """Give the batches of an epoch (from 0) from `start_batch` on; each has `plan.rows_per_rank` rows."""
        return self.timer.watch(self._batches(epoch, start_batch))

    def _batches(self, epoch: int, start_batch: int) -> Iterator[TensorBatch]:
        if start_batch >= self.steps_per_epoch:
            return iter(())
        changes = self._augmentation
        if changes is not None and not (changes.only_decodes and self._split.held):
            places = changes.places(self._split, self._plan, epoch, start_batch)
            return map(_tensors, self._ahead(self._changed, places))
        order = rank_batches(self._split, self._plan, self._rank, self._seed, epoch, start_batch)
        if self._split.held:
            return map(_tensors, map(self._split.take, order))
        return map(_tensors, self._ahead(self._split.take, order))

    def _ahead(self, read: Callable[[Asked], NamedArrays], order: Iterator[Asked]) -> Iterator[NamedArrays]:
        workers = self._loader.loader_workers
        return read_ahead(read, order, workers, self._loader.prefetch) if workers else map(read, order)

    def _changed(self, place: BatchPlace) -> NamedArrays:
        assert self._augmentation is not None  # noqa: S101
        return self._augmentation.read(self._split, place, self._rank, self._plan.world_size)


def _tensors(arrays: NamedArrays) -> TensorBatch:
    with tf.device("CPU"):  # the step copies to the GPU that takes the rows
        return tf.constant(arrays["x"]), tf.constant(arrays["y"])

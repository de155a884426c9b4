"""Batches of one rank, on its device: from memory where the data is small, read ahead by threads where it is not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shared.data import Split
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.reader import HELD_SPLIT_BYTES
from shared.settings.running import LoaderSettings
from shared.settings.training import LoopSettings
from shared.training.augmentation.batches import BatchAugmentation, BatchPlace
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.read_ahead import Asked, rank_batches, rank_batches_together, read_ahead
from shared.training.torch.device_copies import copy_ahead, data_timer

_AT_ONCE_BYTES = 8 * 2**20
"""Of small batches read together."""

_TOKEN = np.dtype(np.int32)
"""Of tokens in memory: torch computes with no uint16, in which small vocabularies are stored."""

TensorBatch = tuple[torch.Tensor, torch.Tensor]
"""Raw rows (N, *shape) and their labels (N,), int64, or their targets (N,), float64; of mixed pictures the labels are
shares of the classes (N, classes), float32.

Of a language model: tokens (N, L) and the token that follows each (N, L), both int64. Of text with classes: tokens
(N, longest of these), filled up with padding, and labels (N,).
"""

StoredTensors = tuple[torch.Tensor, ...]
"""The arrays of some rows, as they are stored."""


class RowReader:
    """Rows of a split as tensors on a device.

    With the loader's `pin_memory` a GPU is copied to from page-locked memory, without waiting for it.
    """

    def __init__(self, split: Split, device: torch.device, loader: LoaderSettings) -> None:
        self.split = split
        self.device = device
        self._on_host = device.type == "cpu"
        self._pin, self._threads = loader.pin_memory and device.type == "cuda", loader.loader_workers
        self._names = ("x", "y") if "y" in split.arrays else ("x",)  # a language model's labels are its next tokens
        self._ragged = split.arrays["x"].ragged  # in memory the longest row would decide on the width of all
        dtypes = {name: np.dtype(a.dtype) if len(self._names) > 1 else _TOKEN for name, a in split.arrays.items()}
        self._row_bytes = sum(math.prod(a.shape) * dtypes[name].itemsize for name, a in split.arrays.items())
        small = split.access == "auto" and self._row_bytes * split.rows <= HELD_SPLIT_BYTES
        whole = split.access == "memory" and not split.arrays["x"].is_encoded  # whose bytes are held, by the split
        self._hold = (small or whole) and not self._ragged

    @cached_property
    def held(self) -> StoredTensors | None:
        """All rows on the device, read at their first use; None if they are too many, or are not to be held."""
        return self._copied(self._read(np.arange(self.split.rows))) if self._hold else None

    def read(self, rows: RowNumbers) -> StoredTensors:
        """Read rows into the memory of the host, as they are stored; safe to call from several threads."""
        return self.pinned(self._read(rows))

    def pinned(self, tensors: StoredTensors) -> StoredTensors:
        """Bring what was read to where a GPU copies from without waiting, if it is to."""
        return tuple(tensor.pin_memory() for tensor in tensors) if self._pin else tensors

    def batches_at_once(self, rows: int) -> int:
        """How many batches of so many rows are best read together: a thread's turn costs as much as a small one."""
        if self._ragged or self.split.access != "streaming":  # the longest row decides on the width of its batch alone
            return 1
        return max(1, _AT_ONCE_BYTES // (rows * self._row_bytes))

    def read_several(self, batches: RowNumbers) -> list[StoredTensors]:
        """Read the rows of some batches, given as (batches, rows), at once and as `read` does."""
        tensors = self.read(batches.reshape(-1))
        return list(zip(*(tensor.unflatten(0, batches.shape).unbind() for tensor in tensors), strict=True))

    def to_device(self, tensors: StoredTensors) -> TensorBatch:
        """Copy what was read to the device, and make a batch of it."""
        return self._batch(self._copied(tensors))

    def to_device_ahead(self, batches: Iterator[StoredTensors]) -> Iterator[TensorBatch]:
        """Do so for one batch after another; a GPU gets the next one while it computes."""
        if self.device.type == "cuda":
            return map(self._batch, copy_ahead(batches, self.device))
        return map(self.to_device, batches)

    def take(self, rows: RowNumbers) -> TensorBatch:
        """Give rows on the device, in the order asked."""
        if self.held is None:
            return self.to_device(self.read(rows))
        index = torch.from_numpy(rows)
        if self.device.type == "cuda":  # a copy from ordinary memory would wait for the steps before
            index = index.pin_memory().to(self.device, non_blocking=True)
        return self._batch(tuple(tensor.index_select(0, index) for tensor in self.held))

    def take_ahead(self, order: Iterator[RowNumbers]) -> Iterator[TensorBatch]:
        """Give some rows after others, as `take` does; threads decode encoded pictures ahead."""
        if not (self._threads and self.split.arrays["x"].is_encoded) or self.held is not None:
            return map(self.take, order)
        return self.to_device_ahead(read_ahead(self.read, order, self._threads, self._threads))

    def _read(self, rows: RowNumbers) -> StoredTensors:
        arrays = self.split.take(rows, _copy_rows)
        if len(self._names) == 1 or self._ragged:
            arrays["x"] = arrays["x"].astype(_TOKEN)
        return tuple(torch.from_numpy(arrays[name]) for name in self._names)

    def _copied(self, tensors: StoredTensors) -> StoredTensors:
        if self._on_host:
            return tensors
        return tuple(tensor.to(self.device, non_blocking=self._pin) for tensor in tensors)

    def _batch(self, tensors: StoredTensors) -> TensorBatch:
        if len(tensors) == 1:
            tokens = tensors[0].long()
            return tokens[:, :-1], tokens[:, 1:]
        return tensors[0].long() if self._ragged else tensors[0], tensors[1]


def _copy_rows(array: npt.NDArray[Any], rows: RowNumbers) -> npt.NDArray[Any]:
    """Copy rows as the reader of rows in memory does: NumPy takes 1.2 times as long."""
    found: npt.NDArray[Any] = torch.from_numpy(array).index_select(0, torch.from_numpy(rows)).numpy()
    return found


class BatchFeed:
    """The rank's part of each global batch of an epoch, in an order that the number of ranks does not change.

    With `loader_workers` of 0, and where the rows are held in memory, nothing is read ahead; pictures that an
    `augmentation` changes are not held on the device. `steps` are those of the whole training, in `epochs` of which the
    last may be cut short. `timer` tells how long was waited for the batches.
    """

    def __init__(
        self,
        reader: RowReader,
        plan: BatchPlan,
        rank: int,
        loop: LoopSettings,
        loader: LoaderSettings,
        seed: int,
        augmentation: BatchAugmentation | None = None,
    ) -> None:
        self._reader, self._plan, self._rank, self._seed, self._augmentation = reader, plan, rank, seed, augmentation
        self._workers, self._prefetch = loader.loader_workers, loader.prefetch
        self.timer = data_timer(reader.device)
        self.steps_per_epoch = reader.split.rows // plan.batch_size
        self.steps = min(loop.epochs * self.steps_per_epoch, loop.max_steps or sys.maxsize)
        self.epochs = math.ceil(self.steps / self.steps_per_epoch)

    def one_pass(self) -> torch.Tensor:
        """Give rows of 0 on the device, as many as one pass takes, to try the model with."""
        rows, _ = self._reader.to_device(self._reader.read(np.zeros(self._plan.rows_per_pass, np.int64)))
        return torch.zeros_like(rows)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[TensorBatch]:
        """Give the batches of an epoch (from 0) from `start_batch` on; each has `plan.rows_per_rank` rows."""
        return self.timer.watch(self._batches(epoch, start_batch))

    def _batches(self, epoch: int, start_batch: int) -> Iterator[TensorBatch]:
        end = min(self.steps_per_epoch, self.steps - epoch * self.steps_per_epoch)
        if start_batch >= end:
            return iter(())
        changes = self._augmentation
        if changes is not None and not (changes.only_decodes and self._reader.held is not None):
            places = changes.places(self._reader.split, self._plan, epoch, start_batch)
            changed = self._ahead(self._changed, islice(places, end - start_batch))
            return self._reader.to_device_ahead(changed)
        order = self._reader.split, self._plan, self._rank, self._seed, epoch
        if self._workers == 0 or self._reader.held is not None:
            return map(self._reader.take, islice(rank_batches(*order, start_batch), end - start_batch))
        count = self._reader.batches_at_once(self._plan.rows_per_rank)
        together = rank_batches_together(*order, batches=range(start_batch, end), count=count)
        several = read_ahead(self._reader.read_several, together, self._workers, -(-self._prefetch // count))
        return self._reader.to_device_ahead(chain.from_iterable(several))

    def _ahead(self, read: Callable[[Asked], StoredTensors], order: Iterator[Asked]) -> Iterator[StoredTensors]:
        return read_ahead(read, order, self._workers, self._prefetch) if self._workers else map(read, order)

    def _changed(self, place: BatchPlace) -> StoredTensors:
        assert self._augmentation is not None  # noqa: S101
        arrays = self._augmentation.read(self._reader.split, place, self._rank, self._plan.world_size)
        return self._reader.pinned((torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])))

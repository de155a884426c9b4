"""Batches of one rank, on its device: from memory where the data is small, read ahead by threads where it is not."""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from shared.data import Split, batches, rank_slice
from shared.data.order import Rows
from shared.training.arguments import BatchPlan

HELD_BYTES = 256 * 2**20
"""Splits up to this size are held in memory, on the device."""

Batch = tuple[torch.Tensor, torch.Tensor]
"""Raw rows (N, *shape) and their labels (N,), int64, or their targets (N,), float64."""


class Reader:
    """Rows of a split as tensors on a device.

    Args:
        split: what to read.
        device: where the tensors go.
        args: the trainer's: with `pin_memory`, a GPU is copied to from page-locked memory, without waiting for it.
    """

    def __init__(self, split: Split, device: torch.device, args: argparse.Namespace) -> None:
        self.split = split
        self._device = device
        self._pin = args.pin_memory == "true" and device.type == "cuda"
        row = sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in split.arrays.values())
        self.held = self.to_device(self.read(np.arange(split.rows))) if row * split.rows <= HELD_BYTES else None

    def read(self, rows: Rows) -> Batch:
        """Read rows into the memory of the host; safe to call from several threads."""
        arrays = self.split.take(rows)
        x, y = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
        return (x.pin_memory(), y.pin_memory()) if self._pin else (x, y)

    def to_device(self, batch: Batch) -> Batch:
        """Copy what was read to the device."""
        return batch[0].to(self._device, non_blocking=self._pin), batch[1].to(self._device, non_blocking=self._pin)

    def take(self, rows: Rows) -> Batch:
        """Give rows on the device, in the order asked."""
        if self.held is None:
            return self.to_device(self.read(rows))
        index = torch.from_numpy(rows)
        if self._device.type == "cuda":  # a copy from ordinary memory would wait for the steps before
            index = index.pin_memory().to(self._device, non_blocking=True)
        return self.held[0].index_select(0, index), self.held[1].index_select(0, index)


class Feed:
    """The rank's part of each global batch of an epoch, in an order that the number of ranks does not change.

    With `loader_workers` of 0, and where the rows are held in memory, nothing is read ahead.

    Args:
        reader: the training rows.
        plan: how a batch is split.
        rank: whose part.
        args: the trainer's: seed, loader_workers and prefetch.
    """

    def __init__(self, reader: Reader, plan: BatchPlan, rank: int, args: argparse.Namespace) -> None:
        self._reader, self._plan, self._rank, self._seed = reader, plan, rank, args.seed
        self._workers, self._prefetch = args.loader_workers, args.prefetch
        self.steps_per_epoch = reader.split.rows // plan.batch_size

    def one_pass(self) -> torch.Tensor:
        """Give rows of 0 on the device, as many as one pass takes, to try the model with."""
        rows, _ = self._reader.take(np.zeros(self._plan.rows_per_pass, np.int64))
        return torch.zeros_like(rows)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Give the batches of an epoch (from 0) from `start_batch` on; each has `plan.rows_per_rank` rows."""
        if start_batch >= self.steps_per_epoch:
            return iter(())
        order = (
            rank_slice(batch, self._rank, self._plan.world_size)
            for batch in batches(
                self._reader.split.rows,
                batch_size=self._plan.batch_size,
                seed=self._seed,
                epoch=epoch,
                start_batch=start_batch,
            )
        )
        if self._workers == 0 or self._reader.held is not None:
            return map(self._reader.take, order)
        return map(self._reader.to_device, self._ahead(order))

    def _ahead(self, order: Iterator[Rows]) -> Iterator[Batch]:
        """Keep `prefetch` batches in flight, and give them in order."""
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="read")
        flying: deque[Future[Batch]] = deque()
        try:
            for rows in order:
                flying.append(pool.submit(self._reader.read, rows))
                if len(flying) > self._prefetch:
                    yield flying.popleft().result()
            while flying:
                yield flying.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

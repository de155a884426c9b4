"""Batches of one rank as tensors, read ahead by tf.data."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from shared.data import Split, batches, rank_slice
from shared.data.order import Rows
from shared.training.arguments import BatchPlan

Batch = tuple[Any, Any]
"""Raw rows (N, *shape) and their labels (N,), int64, or their targets (N,), float64, as tensors."""


class Feed:
    """The rank's part of each global batch of an epoch, in an order that the number of ranks does not change.

    Args:
        split: the training rows.
        plan: how a batch is split.
        rank: whose part.
        args: the trainer's: seed, loader_workers and prefetch.
    """

    def __init__(self, split: Split, plan: BatchPlan, rank: int, args: argparse.Namespace) -> None:
        self._split, self._plan, self._rank, self._args = split, plan, rank, args
        self.steps_per_epoch = split.rows // plan.batch_size

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Batch]:
        """Give the batches of an epoch (from 0) from `start_batch` on; each has `plan.rows_per_rank` rows."""
        if start_batch >= self.steps_per_epoch:
            return iter(())

        def order() -> Iterator[Rows]:
            chosen = batches(
                self._split.rows,
                batch_size=self._plan.batch_size,
                seed=self._args.seed,
                epoch=epoch,
                start_batch=start_batch,
            )
            return (rank_slice(batch, self._rank, self._plan.world_size) for batch in chosen)

        rows = tf.data.Dataset.from_generator(
            order, output_signature=tf.TensorSpec((self._plan.rows_per_rank,), tf.int64)
        )
        workers = self._args.loader_workers
        read = rows.map(self._read, num_parallel_calls=workers or None, deterministic=True if workers else None)
        return iter(read.prefetch(self._args.prefetch) if workers else read)

    def _read(self, rows: Any) -> Batch:
        x, y = self._split.arrays["x"], self._split.arrays["y"]

        def take(numbers: Rows) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            arrays = self._split.take(numbers)
            return arrays["x"], arrays["y"]

        taken_x, taken_y = tf.numpy_function(take, [rows], (tf.as_dtype(x.dtype), tf.as_dtype(y.dtype)))
        count = self._plan.rows_per_rank  # TensorFlow cannot see the shapes that a Python function gives
        return tf.ensure_shape(taken_x, (count, *x.shape)), tf.ensure_shape(taken_y, (count, *y.shape))

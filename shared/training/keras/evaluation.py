"""Exact loss and accuracy over all ranks: each row counts once, whatever the number of ranks."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shared.data import Dataset
from shared.distributed import World
from shared.training.arguments import BatchPlan


class Evaluation:
    """Measures a model on a split; on an empty split there is nothing to measure.

    Args:
        data: the dataset.
        split: its part that is measured.
        world: the ranks, each of which takes every n-th row.
        plan: how much fits into one pass.
        args: the trainer's.
        alone: whether rank 0 measures by itself, because the others compute for it.
    """

    def __init__(
        self, data: Dataset, split: str, world: World, plan: BatchPlan, args: argparse.Namespace, *, alone: bool = False
    ) -> None:
        self._world, self._alone = world, alone
        self._timeout = timedelta(minutes=args.step_timeout)
        self._rows_per_pass = 4 * plan.rows_per_pass  # no activations are kept, so more fit than in training
        self._rows = data.index.rows(split)
        self._split = data.split(split) if self._rows else None
        self._mine = np.arange(0, self._rows) if alone else np.arange(world.rank, self._rows, world.world_size)

    def of(self, model: keras.Model) -> dict[str, float]:
        """Compute mean cross entropy (`loss`, in nats) and `accuracy`, summed in float64."""
        if self._split is None:
            return {}
        loss = correct = 0.0
        for start in range(0, len(self._mine), self._rows_per_pass):
            arrays = self._split.take(self._mine[start : start + self._rows_per_pass])
            losses, hits = _measure(model(arrays["x"], training=False), arrays["y"])
            loss, correct = loss + losses, correct + hits
        if not self._alone:
            loss, correct = self._world.sum([loss, correct], "validation", self._timeout)
        return {"loss": loss / self._rows, "accuracy": correct / self._rows}


def _measure(logits: Any, labels: Any) -> tuple[float, float]:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    hits = np.argmax(np.asarray(logits), 1) == labels
    return float(np.asarray(losses, np.float64).sum()), float(hits.sum())

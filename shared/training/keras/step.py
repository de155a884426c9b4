"""The gradients of one rank's part of a batch; the trainers differ in how they bring those of all ranks together."""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from shared.training.core.batch_plan import BatchPlan
from shared.training.keras.objective import TrainingObjective

RankGradients = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, list[tf.Tensor]]]
"""Takes rows and labels; gives this rank's part of the mean loss over the global batch, and of its gradients."""


def rank_gradients(
    model: keras.Model, objective: TrainingObjective, plan: BatchPlan, *, compiled: bool = False
) -> RankGradients:
    """Make the function that computes this rank's part of the loss and of its gradients, in passes.

    Their sums over all ranks are the loss and the gradients of the whole batch. XLA, where it is asked for, compiles
    this alone: what follows speaks with the other ranks.
    """
    variables = model.trainable_variables

    def compute(rows: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        total, gradients = tf.zeros(()), None
        passes = plan.accumulation_steps
        for part_rows, part_labels in zip(tf.split(rows, passes), tf.split(labels, passes), strict=True):
            with tf.GradientTape() as tape:
                loss = objective.summed_loss(model(part_rows, training=True), part_labels) / plan.batch_size
            found = tape.gradient(loss, variables)
            gradients = found if gradients is None else [a + b for a, b in zip(gradients, found, strict=True)]
            total += tf.cast(loss, total.dtype)
        assert gradients is not None  # noqa: S101  # there is a pass
        return total, gradients

    made: RankGradients = tf.function(compute, jit_compile=True) if compiled else compute
    return made

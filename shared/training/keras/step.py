"""The gradients of one rank's part of a batch; the trainers differ in how they bring those of all ranks together."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from shared.training.arguments import BatchPlan
from shared.training.keras.optimization import summed_loss


def local_gradients(
    model: keras.Model, rows: Any, labels: Any, plan: BatchPlan, label_smoothing: float
) -> tuple[Any, list[Any]]:
    """Compute this rank's part of the mean loss over the global batch and of its gradients, in passes.

    Their sums over all ranks are the loss and the gradients of the whole batch.
    """
    total, gradients = tf.zeros(()), None
    passes = plan.accumulation_steps
    for part_rows, part_labels in zip(tf.split(rows, passes), tf.split(labels, passes), strict=True):
        with tf.GradientTape() as tape:
            loss = summed_loss(model, part_rows, part_labels, label_smoothing) / plan.batch_size
        found = tape.gradient(loss, model.trainable_variables)
        gradients = found if gradients is None else [a + b for a, b in zip(gradients, found, strict=True)]
        total += tf.cast(loss, total.dtype)
    assert gradients is not None  # noqa: S101  # there is a pass
    return total, gradients

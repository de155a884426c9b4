"""Gradients of a rank's rows, clipping, optimizer, learning rate: what every trainer with TensorFlow does alike.

The trainers differ in how they bring the gradients of all ranks together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from shared.settings.training import OptimizerSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.schedule import LearningSchedule
from shared.training.keras.objective import TrainingObjective

BUCKET_BYTES = 32 * 2**20
"""Of gradients that the ranks exchange at once: much more than latency, much less than a large model."""


class ScheduledRate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule in the graph, as a function of the optimizer's own count of steps."""

    def __init__(self, schedule: LearningSchedule) -> None:
        self.schedule = schedule

    def __call__(self, step: object) -> tf.Tensor:
        """Learning rate of a step, counted from 0; the formula of `LearningSchedule`."""
        of, step = self.schedule, tf.cast(step, tf.float32)
        rising = of.peak * (step + 1) / (of.warmup_steps + 1)
        done = tf.minimum(1.0, (step - of.warmup_steps) / max(1, of.steps - of.warmup_steps))
        falling = {
            "constant": tf.fill([], of.peak),
            "linear": of.peak * (1 - done),
            "cosine": of.peak * 0.5 * (1 + tf.cos(math.pi * done)),
        }[of.kind]
        return tf.where(step < of.warmup_steps, rising, falling)


def make_optimizer(
    model: keras.Model, schedule: LearningSchedule, settings: OptimizerSettings
) -> keras.optimizers.Optimizer:
    """Make the optimizer with all its variables."""
    rate, momentum = ScheduledRate(schedule), settings.momentum
    if settings.optimizer == "sgd":
        made: keras.optimizers.Optimizer = keras.optimizers.SGD(rate, momentum, nesterov=momentum > 0)
    elif settings.optimizer == "adam":
        made = keras.optimizers.Adam(rate, momentum, 0.999, epsilon=1e-8)
    else:
        made = decaying = keras.optimizers.AdamW(rate, settings.suited_decay, momentum, 0.999, epsilon=1e-8)
        decaying.exclude_from_weight_decay(
            [variable for variable in model.trainable_variables if not _decays(variable)]
        )
    made.build(model.trainable_variables)
    return made


def finish_gradients(
    gradients: Sequence[tf.Tensor], variables: Sequence[keras.Variable], settings: OptimizerSettings
) -> list[tf.Tensor]:
    """Clip the gradients of the whole batch (0: not), and add the penalty that weight decay means for sgd and adam."""
    finished = list(gradients)
    if settings.clip_norm > 0:
        finished, _ = tf.clip_by_global_norm(finished, settings.clip_norm)
    decay = settings.suited_decay
    if settings.optimizer == "adamw" or decay == 0:
        return list(finished)
    return [
        gradient + tf.cast(decay, gradient.dtype) * variable if _decays(variable) else gradient
        for gradient, variable in zip(finished, variables, strict=True)
    ]


def in_buckets(
    gradients: Sequence[tf.Tensor], exchange: Callable[[list[tf.Tensor]], Sequence[tf.Tensor]]
) -> list[tf.Tensor]:
    """Exchange gradients in buckets of at least `BUCKET_BYTES`, from the last layer's to the first's.

    A bucket is on its way as soon as the backward pass has computed it. Which gradients are in one does not depend on
    when they are there, so that the ranks always sum them up in the same order.
    """
    buckets: list[list[int]] = [[]]
    held = 0
    for number in reversed(range(len(gradients))):
        if held >= BUCKET_BYTES:
            buckets.append([])
            held = 0
        buckets[-1].append(number)
        held += math.prod(gradients[number].shape) * tf.as_dtype(gradients[number].dtype).size
    exchanged: dict[int, tf.Tensor] = {}
    for bucket in buckets:
        exchanged.update(zip(bucket, exchange([gradients[number] for number in bucket]), strict=True))
    return [exchanged[number] for number in range(len(gradients))]


def _decays(variable: keras.Variable) -> bool:
    return len(variable.shape) > 1


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
        parts = (tf.split(given, passes) if passes > 1 else [given] for given in (rows, labels))
        for part_rows, part_labels in zip(*parts, strict=True):
            with tf.GradientTape() as tape:
                loss = objective.summed_loss(model(part_rows, training=True), part_labels) / plan.batch_size
            found = tape.gradient(loss, variables)
            gradients = found if gradients is None else [a + b for a, b in zip(gradients, found, strict=True)]
            total += tf.cast(loss, total.dtype)
        assert gradients is not None  # noqa: S101  # there is a pass
        return total, gradients

    made: RankGradients = tf.function(compute, jit_compile=True) if compiled else compute
    return made

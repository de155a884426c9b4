"""Optimizer, learning rate and clipping: what every trainer with TensorFlow sets in the same way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import tensorflow as tf

from shared.settings.training import OptimizerSettings
from shared.training.core.schedule import LearningSchedule


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


def _decays(variable: keras.Variable) -> bool:
    return len(variable.shape) > 1

"""Optimizer, learning rate and clipping: what every trainer with TensorFlow sets in the same way."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from shared.training.core.batch_plan import weight_decay
from shared.training.core.schedule import Schedule


class LearningRate(keras.optimizers.schedules.LearningRateSchedule):
    """The schedule of the arguments, in the graph, as a function of the optimizer's own count of steps."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def __call__(self, step: Any) -> Any:
        """Learning rate of a step, counted from 0; the formula of `Schedule`."""
        of, step = self.schedule, tf.cast(step, tf.float32)
        rising = of.peak * (step + 1) / (of.warmup_steps + 1)
        done = tf.minimum(1.0, (step - of.warmup_steps) / max(1, of.steps - of.warmup_steps))
        falling = {
            "constant": tf.fill([], of.peak),
            "linear": of.peak * (1 - done),
            "cosine": of.peak * 0.5 * (1 + tf.cos(math.pi * done)),
        }[of.kind]
        return tf.where(step < of.warmup_steps, rising, falling)


def make_optimizer(model: keras.Model, schedule: Schedule, args: argparse.Namespace) -> keras.optimizers.Optimizer:
    """Make the optimizer of the arguments with all its variables."""
    rate, decay = LearningRate(schedule), weight_decay(args)
    if args.optimizer == "sgd":
        made = keras.optimizers.SGD(rate, args.momentum, nesterov=args.momentum > 0)
    elif args.optimizer == "adam":
        made = keras.optimizers.Adam(rate, args.momentum, 0.999, epsilon=1e-8)
    else:
        made = keras.optimizers.AdamW(rate, decay, args.momentum, 0.999, epsilon=1e-8)
        made.exclude_from_weight_decay([variable for variable in model.trainable_variables if not _decays(variable)])
    made.build(model.trainable_variables)
    return made


def finish_gradients(gradients: Sequence[Any], variables: Sequence[Any], args: argparse.Namespace) -> list[Any]:
    """Clip the gradients of the whole batch (0: not), and add the penalty that weight decay means for sgd and adam."""
    finished = list(gradients)
    if args.clip_norm > 0:
        finished, _ = tf.clip_by_global_norm(finished, args.clip_norm)
    decay = weight_decay(args)
    if args.optimizer == "adamw" or decay == 0:
        return list(finished)
    return [
        gradient + tf.cast(decay, gradient.dtype) * variable if _decays(variable) else gradient
        for gradient, variable in zip(finished, variables, strict=True)
    ]


def _decays(variable: Any) -> bool:
    return len(variable.shape) > 1

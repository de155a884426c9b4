"""train_tf_multiworker's counterpart: a custom loop under the strategy, as TensorFlow's tutorial has it.

The optimizer clips what a worker has computed, before it sums over the workers: Keras offers nothing else.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from loops.keras_parts import batches, make_adamw, make_model, smoothed_losses
from loops.step_clock import StepClock

from shared.data import Dataset
from shared.distributed import World
from shared.settings.keras import KerasTrainerSettings


def train_by_hand(settings: KerasTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    with world.strategy.scope():
        model = make_model(data, settings)
        optimizer = make_adamw(model, data, settings, settings.optimizer.clip_norm)
    step, losses = make_step(model, optimizer, world.strategy, settings), []
    mean_loss = make_sum(world.strategy)
    for number, batch in enumerate(batches(data, settings, world.rank, world.world_size), 1):
        losses.append(step(*batch))
        if number % settings.reports.log_every == 0:
            float(mean_loss(tf.constant(sum(float(loss) for loss in losses))))
            losses.clear()
        clock.end_step()


def make_step(model: keras.Model, optimizer: Any, strategy: Any, settings: KerasTrainerSettings) -> Any:
    """One optimizer step; gives this worker's part of the mean loss."""
    variables, given, size = model.trainable_variables, settings.optimizer, settings.batch.batch_size

    def on_a_worker(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(smoothed_losses(model, x, y, given.label_smoothing)) / size
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.run(on_a_worker, args=(x, y))

    return step


def make_sum(strategy: Any) -> Any:
    """What adds up a number of each worker."""

    @tf.function
    def summed(mine: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(lambda number: number, args=(mine,)), axis=None)

    return summed

"""train_tf_parameter_server's counterpart: steps that a coordinator hands out, as in TensorFlow's tutorial.

Both send the rows with the step, out of the coordinator's memory; a tutorial's worker would read its own.
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
    for number, batch in enumerate(batches(data, settings, 0, 1), 1):
        losses.append(world.coordinator.schedule(step, args=batch))
        if number % settings.reports.log_every == 0:
            sum(float(loss.fetch()) for loss in losses)
            losses.clear()
        clock.end_step()


def make_step(model: keras.Model, optimizer: Any, strategy: Any, settings: KerasTrainerSettings) -> Any:
    """One optimizer step on one worker; gives the mean loss of its batch."""
    variables, given = model.trainable_variables, settings.optimizer

    def on_a_worker(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(smoothed_losses(model, x, y, given.label_smoothing))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.run(on_a_worker, args=(x, y))

    return step

"""train_horovod_keras' counterpart: Horovod's gradient tape and a Keras optimizer, in a compiled step.

`horovod.keras.DistributedOptimizer` exchanges nothing under Keras 3, so that nobody can use it in `fit`.
"""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from loops.keras_parts import batches, make_adamw, make_model, smoothed_losses
from loops.step_clock import StepClock

from shared.data import Dataset
from shared.distributed import World
from shared.settings.keras import KerasTrainerSettings


def train_by_hand(settings: KerasTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    model = make_model(data, settings)
    optimizer = make_adamw(model, data, settings)
    hvd.broadcast_variables([variable.value for variable in (*model.weights, *optimizer.variables)], root_rank=0)
    step, losses = make_step(model, optimizer, settings), []
    for number, batch in enumerate(batches(data, settings, world.rank, world.world_size), 1):
        losses.append(step(*batch))
        if number % settings.reports.log_every == 0:
            mean = tf.constant(sum(float(loss) for loss in losses))
            float(hvd.allreduce(mean, name="loss"))
            losses.clear()
        clock.end_step()


def make_step(model: keras.Model, optimizer: Any, settings: KerasTrainerSettings) -> Any:
    """One optimizer step: gradients of all ranks, clipped and applied."""
    variables, given = model.trainable_variables, settings.optimizer

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(smoothed_losses(model, x, y, given.label_smoothing))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [one.value for one in variables])
        gradients, _ = tf.clip_by_global_norm(gradients, given.clip_norm)
        optimizer.apply(gradients, variables)
        return loss

    return step

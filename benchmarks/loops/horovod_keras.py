"""train_horovod_keras' counterpart: Horovod's gradient tape and a Keras optimizer, in a compiled step.

`horovod.keras.DistributedOptimizer` exchanges nothing under Keras 3, so that nobody can use it in `fit`.
"""

from __future__ import annotations

from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from loops.step_clock import StepClock

from shared.data import Dataset
from shared.distributed import World
from shared.models.keras.resnet import build_resnet
from shared.settings.keras import KerasTrainerSettings
from shared.training.core.schedule import LearningSchedule
from shared.training.keras.optimization import ScheduledRate


def train_by_hand(settings: KerasTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    split, size, given = data.split("train"), settings.batch.batch_size, settings.optimizer
    arrays = split.take(np.arange(split.rows))
    keras.utils.set_random_seed(settings.seed)
    model = make_model(data, settings.network.architecture)
    schedule = LearningSchedule.for_steps(split.rows // size, given.learning_rate, settings.schedule)
    optimizer = keras.optimizers.AdamW(ScheduledRate(schedule), given.suited_decay, given.momentum, epsilon=1e-8)
    optimizer.exclude_from_weight_decay([one for one in model.trainable_variables if len(one.shape) < 2])
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([variable.value for variable in (*model.weights, *optimizer.variables)], root_rank=0)
    step, losses, part = make_step(model, optimizer, settings), [], size // world.world_size
    order = np.random.default_rng(settings.seed).permutation(split.rows)
    for number in range(split.rows // size):
        chosen = order[number * size + world.rank * part :][:part]
        losses.append(step(tf.constant(arrays["x"][chosen]), tf.constant(arrays["y"][chosen])))
        if (number + 1) % settings.reports.log_every == 0:
            mean = tf.constant(sum(float(loss) for loss in losses))
            float(hvd.allreduce(mean, name="loss"))
            losses.clear()
        clock.end_step()


def make_model(data: Dataset, architecture: str) -> keras.Model:
    """A perceptron, or our zoo's small residual network, with the normalisation in front."""
    index = data.index
    shape = index.arrays["x"].shape
    rows = keras.Input(shape, dtype="uint8")
    variance = [deviation**2 for deviation in index.statistics.std]
    x = keras.layers.Normalization(mean=np.array(index.statistics.mean), variance=np.array(variance))(rows)
    if architecture == "resnet":
        return keras.Model(rows, build_resnet(shape, 10)(x))
    x = keras.layers.Flatten()(x)
    for _ in range(2):
        x = keras.layers.Dense(256, activation="gelu")(x)
    return keras.Model(rows, keras.layers.Dense(10)(x))


def make_step(model: keras.Model, optimizer: Any, settings: KerasTrainerSettings) -> Any:
    """One optimizer step: gradients of all ranks, clipped and applied."""
    variables, smoothing = model.trainable_variables, settings.optimizer.label_smoothing

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            labels = tf.one_hot(y, 10)
            smooth = labels * (1 - smoothing) + smoothing / 10
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(smooth, model(x, training=True)))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, [one.value for one in variables])
        gradients, _ = tf.clip_by_global_norm(gradients, settings.optimizer.clip_norm)
        optimizer.apply(gradients, variables)
        return loss

    return step

"""What the hand-written loops with TensorFlow have in common: rows in memory, the model, its optimizer and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from shared.data import Dataset
from shared.models.keras.resnet import build_resnet
from shared.settings.keras import KerasTrainerSettings
from shared.training.core.schedule import LearningSchedule
from shared.training.keras.optimization import ScheduledRate


def batches(data: Dataset, settings: KerasTrainerSettings, rank: int, ranks: int) -> Iterator[tuple[Any, Any]]:
    """A rank's part of each batch of an epoch."""
    split, size = data.split("train"), settings.batch.batch_size
    arrays, part = split.take(np.arange(split.rows)), size // ranks
    order = np.random.default_rng(settings.seed).permutation(split.rows)
    for start in range(rank * part, split.rows // size * size, size):
        chosen = order[start : start + part]
        yield tf.constant(arrays["x"][chosen]), tf.constant(arrays["y"][chosen])


def make_model(data: Dataset, settings: KerasTrainerSettings) -> keras.Model:
    """A perceptron, or our zoo's small residual network, with the normalisation in front."""
    keras.utils.set_random_seed(settings.seed)
    index = data.index
    assert index.statistics is not None
    shape = index.arrays["x"].shape
    rows = keras.Input(shape, dtype="uint8")
    variance = [deviation**2 for deviation in index.statistics.std]
    x = keras.layers.Normalization(mean=np.array(index.statistics.mean), variance=np.array(variance))(rows)
    if settings.network.architecture == "resnet":
        return keras.Model(rows, build_resnet(shape, 10)(x))
    x = keras.layers.Flatten()(x)
    for _ in range(2):
        x = keras.layers.Dense(256, activation="gelu")(x)
    return keras.Model(rows, keras.layers.Dense(10)(x))


def make_adamw(
    model: keras.Model, data: Dataset, settings: KerasTrainerSettings, clip_norm: float | None = None
) -> keras.optimizers.Optimizer:
    """AdamW as our settings have it, which decays matrices alone; it clips what it is given if it has a `clip_norm`."""
    given, steps = settings.optimizer, data.split("train").rows // settings.batch.batch_size
    rate = ScheduledRate(LearningSchedule.for_steps(steps, given.learning_rate, settings.schedule))
    optimizer = keras.optimizers.AdamW(
        rate, given.suited_decay, given.momentum, epsilon=1e-8, global_clipnorm=clip_norm
    )
    optimizer.exclude_from_weight_decay([one for one in model.trainable_variables if len(one.shape) < 2])
    optimizer.build(model.trainable_variables)
    return optimizer


def smoothed_losses(model: keras.Model, x: Any, y: Any, smoothing: float) -> Any:
    """The cross entropy of each row."""
    of: Any = tf  # whose stubs lack one_hot
    labels = of.one_hot(y, 10) * (1 - smoothing) + smoothing / 10
    return tf.nn.softmax_cross_entropy_with_logits(labels, model(x, training=True))

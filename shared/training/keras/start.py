"""The start of a training: TensorFlow's settings, seeds, and a model of which it is known that it can be saved."""

from __future__ import annotations

import argparse

import keras
import tensorflow as tf

from shared.data import Dataset
from shared.models import Card
from shared.models.keras import build, check_saveable

POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}


def set_up() -> None:
    """Settings of TensorFlow for this process; to be called before it computes anything."""
    tf.config.experimental.enable_op_determinism()  # a resumed run ends with the same weights


def make_model(args: argparse.Namespace, data: Dataset) -> tuple[keras.Model, Card]:
    """Build the model of the arguments; its first weights depend on the seed alone.

    Raises:
        Refusal: if it cannot be built or saved.
    """
    x, statistics = data.index.arrays["x"], data.index.statistics
    card = Card(
        args.architecture, x.shape, x.dtype, data.index.classes, statistics.mean, statistics.std, framework="keras"
    )
    keras.utils.set_random_seed(args.seed)
    model = build(card, POLICIES[args.precision])
    return model, card


def try_saving(model: keras.Model, card: Card) -> None:
    """Show before the first step that the model can be saved: after the last one it would be too late.

    Raises:
        Refusal: if it cannot.
    """
    check_saveable(model, card)

"""From the name of an architecture to a Keras model that takes rows as the dataset holds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import keras
import numpy as np

from ..card import Card  # noqa: TID252
from ..refuse import refusal  # noqa: TID252
from . import mlp, resnet

Builder = Callable[[tuple[int, ...], int], keras.Model]
"""Takes the shape of one row, channels last, and the number of outputs."""

ZOO: Mapping[str, Builder] = MappingProxyType({"mlp": mlp.build, "resnet": resnet.build})
FOR_IMAGES = ("resnet",)


def build(card: Card, dtype: str = "float32") -> keras.Model:
    """Build the model of a card with fresh weights: raw rows (N, *input_shape) of any type to logits (N, classes).

    The statistics belong to the model, so that whoever has it needs nothing else to feed it.

    Args:
        card: what to build.
        dtype: Keras' policy for all layers: float32, float64 or mixed_bfloat16.

    Raises:
        Refusal: if there is no such architecture, or if it does not fit the rows.
    """
    builder, shape = ZOO.get(card.architecture), card.input_shape
    if builder is None:
        raise refusal(f"architecture {card.architecture!r} is not known in Keras: choose {' or '.join(ZOO)}.")
    if card.architecture in FOR_IMAGES and len(shape) != 3:
        raise refusal(
            f"architecture {card.architecture} takes images, (H, W, C); the rows have shape {shape}. Use mlp."
        )
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        rows = keras.Input(shape, dtype=card.input_dtype)
        # A channel that never changes is only shifted: dividing by its deviation of 0 would make it not a number.
        variance = [deviation**2 or 1.0 for deviation in card.std]
        x = keras.layers.Normalization(mean=np.array(card.mean), variance=np.array(variance))(rows)
        net = builder(shape, len(card.classes))
        # Logits in at least 32 bits, whatever the layers compute with.
        logits = keras.layers.Activation("linear", dtype="float64" if dtype == "float64" else "float32")(net(x))
        return keras.Model(rows, logits)
    finally:
        keras.config.set_dtype_policy(before)

"""A multilayer perceptron: the default, for tables and small images."""

from __future__ import annotations

import keras


def build_mlp(input_shape: tuple[int, ...], num_outputs: int, *, width: int = 256, depth: int = 2) -> keras.Model:
    """Build `depth` hidden layers of `width` units for inputs of any shape."""
    hidden = [keras.layers.Dense(width, activation="gelu") for _ in range(depth)]
    return keras.Sequential(
        [keras.Input(input_shape), keras.layers.Flatten(), *hidden, keras.layers.Dense(num_outputs)], name="mlp"
    )

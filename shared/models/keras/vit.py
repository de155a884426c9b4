"""A small vision transformer, without dropout: the network of `shared.models.vit`, which says why it is as it is."""

from __future__ import annotations

import keras
from keras import layers, ops

_PATCHES_PER_SIDE = 8
"""The patch size, 2 pixels at least, is chosen so that the longer side has about this many patches."""


def build_vit(input_shape: tuple[int, ...], num_outputs: int, *, width: int = 64, depth: int = 4) -> keras.Model:
    """Build a transformer for images of `input_shape` (height, width, channels); sides are padded to whole patches."""
    images = keras.Input(input_shape)
    patch = max(2, round(max(input_shape[:2]) / _PATCHES_PER_SIDE))
    patches = [-(-side // patch) for side in input_shape[:2]]
    padding = [(0, count * patch - side) for count, side in zip(patches, input_shape[:2], strict=True)]
    x = layers.ZeroPadding2D(tuple(padding))(images)
    x = layers.Conv2D(width, patch, strides=patch)(x)
    x = PositionEmbedding()(layers.Reshape((patches[0] * patches[1], width))(x))
    for _ in range(depth):
        x = layers.Add()([x, SelfAttention(heads=width // 32)(layers.LayerNormalization(epsilon=1e-5)(x))])
        y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization(epsilon=1e-5)(x))
        x = layers.Add()([x, layers.Dense(width, kernel_initializer="zeros")(y)])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-5)(x))
    return keras.Model(images, layers.Dense(num_outputs)(x), name="vit")


class PositionEmbedding(layers.Layer):
    """Adds a learned vector for each place."""

    def build(self, input_shape: tuple[int, ...]) -> None:
        """Make the vectors for inputs (N, places, width)."""
        self.vectors = self.add_weight(shape=(1, *input_shape[1:]), initializer=keras.initializers.RandomNormal(0, 0.3))

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        """Map (N, places, width) to the same shape."""
        return x + self.vectors


class SelfAttention(layers.Layer):
    """Self-attention with normalised queries and keys; its last layer starts at 0."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_q, self.norm_k = (layers.LayerNormalization(epsilon=1e-5) for _ in range(2))

    def build(self, input_shape: tuple[int, ...]) -> None:
        """Make the layers for inputs (N, places, width)."""
        width = input_shape[-1]
        self.qkv, self.out = layers.Dense(3 * width), layers.Dense(width, kernel_initializer="zeros")
        self.qkv.build(input_shape)
        self.out.build(input_shape)
        for norm in (self.norm_q, self.norm_k):
            norm.build((None, self.heads, input_shape[1], width // self.heads))

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        """Map (N, places, width) to the same shape."""
        places, width = x.shape[1:]
        split = ops.reshape(self.qkv(x), (-1, places, 3, self.heads, width // self.heads))
        q, k, v = ops.unstack(ops.transpose(split, (2, 0, 3, 1, 4)), 3)
        scores = ops.matmul(self.norm_q(q), ops.swapaxes(self.norm_k(k), -1, -2)) / (width // self.heads) ** 0.5
        y = ops.matmul(ops.softmax(scores), v)
        return self.out(ops.reshape(ops.swapaxes(y, 1, 2), (-1, places, width)))

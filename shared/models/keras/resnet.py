"""A small residual network for images.

GroupNorm, not BatchNorm: statistics over a batch would depend on how many ranks the batch is split over.
"""

from __future__ import annotations

import keras
from keras import layers

from ..stored import make_refusal  # noqa: TID252

_LEAST_SIDE = 32  # of keras.applications


def build_resnet(input_shape: tuple[int, ...], num_outputs: int, *, width: int = 32, stages: int = 3) -> keras.Model:
    """Build a network for images of `input_shape` (height, width, channels), doubling its width at each stage.

    Two residual blocks for each stage; each stage after the first halves height and width, down to 1 x 1.
    """
    images = keras.Input(input_shape)
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(images)
    for stage in range(stages):
        x = _block(x, width << stage, strides=2 if stage else 1)
        x = _block(x, width << stage)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.GroupNormalization(8)(x)))
    return keras.Model(images, layers.Dense(num_outputs)(x), name="resnet")


def build_resnet50(input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Build the ResNet-50 of keras.applications, for images of 32 x 32 and more, with random weights.

    Raises:
        Refusal: if the images are smaller.
    """
    if min(input_shape[:2]) < _LEAST_SIDE:
        raise make_refusal(
            f"architecture resnet50 of Keras takes images of {_LEAST_SIDE} x {_LEAST_SIDE} and more; these are "
            f"{input_shape[0]} x {input_shape[1]}. Prepare them with a larger image_size, or choose resnet."
        )
    body = keras.applications.ResNet50(include_top=False, weights=None, input_shape=input_shape, pooling="avg")
    return keras.Model(body.input, layers.Dense(num_outputs)(body.output), name="resnet50")


def _block(x: keras.KerasTensor, outputs: int, strides: int = 1) -> keras.KerasTensor:
    """Pre-activation residual block; its last convolution starts at 0, so that the block starts as the identity."""
    y = layers.ReLU()(layers.GroupNormalization(8)(x))
    y = layers.Conv2D(outputs, 3, strides, padding="same", use_bias=False)(y)
    y = layers.ReLU()(layers.GroupNormalization(8)(y))
    y = layers.Conv2D(outputs, 3, padding="same", use_bias=False, kernel_initializer="zeros")(y)
    if x.shape[-1] != outputs or strides != 1:
        x = layers.Conv2D(outputs, 1, strides, use_bias=False)(x)
    return layers.Add()([x, y])

"""From the name of an architecture, or a function of the user's, to a Keras model that takes rows as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np

from ..card import ModelCard  # noqa: TID252
from ..own_code import own_function  # noqa: TID252
from ..stored import make_refusal  # noqa: TID252
from . import mlp, resnet

NetworkBuilder = Callable[[tuple[int, ...], int], keras.Model]
"""Takes the shape of one row, channels last, and the number of outputs."""

ZOO: Mapping[str, NetworkBuilder] = MappingProxyType(
    {"mlp": mlp.build_mlp, "resnet": resnet.build_resnet, "resnet50": resnet.build_resnet50}
)
IMAGE_ARCHITECTURES = ("resnet", "resnet50")
_TORCH_ONLY = ("resnet18", "resnet34", "vit", "vit_s", "vit_b", "vit_small_patch16", "vit_base_patch16")


def build_network(card: ModelCard, dtype: str = "float32", model_code: str | Path | None = None) -> keras.Model:
    """Build the model of a card with fresh weights: raw rows (N, *input_shape) to logits or values (N, outputs).

    The statistics belong to the model, so that whoever has it needs nothing else to feed it; a regression gives values
    in the target's units.

    Args:
        card: what to build. An architecture ``FILE.py:FUNCTION`` is a function of the user's that takes the shape of a
            row, channels last, and the number of outputs, and returns a ``keras.Model`` or a ``keras.Layer``.
        dtype: Keras' policy for all layers: float32, float64 or mixed_bfloat16.
        model_code: folder with the user's code.

    Raises:
        Refusal: if there is no such architecture, if it does not fit the rows, or if the user's function is wrong.
    """
    shape = card.input_shape
    if card.architecture in IMAGE_ARCHITECTURES and len(shape) != 3:
        raise make_refusal(
            f"architecture {card.architecture} takes images, (H, W, C); the rows have shape {shape}. Use mlp."
        )
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        rows = keras.Input(shape, dtype=card.input_dtype)
        # A channel that never changes is only shifted: dividing by its deviation of 0 would make it not a number.
        variance = [deviation**2 or 1.0 for deviation in card.std]
        # At least 32 bits at both ends, whatever the layers compute with: in bfloat16 the years 2017 to 2023 are two.
        wide = "float64" if dtype == "float64" else "float32"
        x = keras.layers.Normalization(mean=np.array(card.mean), variance=np.array(variance), dtype=wide)(rows)
        x = expand_categories(card.category_sizes, x)
        outputs = _apply(card, model_code, x)
        if tuple(outputs.shape[1:]) != (card.outputs,):
            why = f"with {len(card.classes)} classes" if card.classes else "for a regression"
            raise make_refusal(
                f"{card.architecture} gives outputs of shape {tuple(outputs.shape)}; {why} it has to be (None, "
                f"{card.outputs})."
            )
        outputs = keras.layers.Activation("linear", dtype=wide)(outputs)
        if (card.target_mean, card.target_std) != (0.0, 1.0):
            outputs = keras.layers.Rescaling(card.target_std, card.target_mean, dtype=wide)(outputs)
        return keras.Model(rows, outputs)
    finally:
        keras.config.set_dtype_policy(before)


def expand_categories(sizes: Sequence[int], x: keras.KerasTensor) -> keras.KerasTensor:
    """Put a feature for each value of a category, 1 or 0, in the place of its code, as `CategoryExpansion` does.

    `sizes` has the number of values of each feature, 0 for a number; none at all if there is no category.
    """
    if not sizes:
        return x
    ops: Any = keras.ops  # made at run time, so that mypy finds nothing in it
    found = np.array([(place, code) for place, size in enumerate(sizes) for code in range(1, size + 1)], np.int32)
    numbers = np.array([place for place, size in enumerate(sizes) if not size], np.int32)
    same = ops.equal(ops.take(x, found[:, 0], axis=1), ops.cast(found[:, 1], x.dtype))
    return ops.concatenate([ops.take(x, numbers, axis=1), ops.cast(same, x.dtype)], axis=1)


def _apply(card: ModelCard, model_code: str | Path | None, x: keras.KerasTensor) -> keras.KerasTensor:
    """Build the network of a card and apply it to normalised rows."""
    builder = ZOO.get(card.architecture)
    if builder is not None:
        return builder(card.network_shape, card.outputs)(x)
    if card.architecture in _TORCH_ONLY:
        raise make_refusal(
            f"architecture {card.architecture} is in PyTorch alone: choose {', '.join(ZOO)} here, or a trainer of "
            "PyTorch, such as train_ddp."
        )
    what, choices = f"architecture {card.architecture!r}", f"choose {', '.join(ZOO)}, or FILE.py:FUNCTION"
    name = card.architecture.rpartition(":")[2]
    with own_function(what, card.architecture, model_code, choices) as (path, function):
        try:
            net = function(card.network_shape, card.outputs)
        except Exception as error:
            given = f"{name}({card.network_shape}, {card.outputs})"
            raise make_refusal(f"{path}: {given} raised {type(error).__name__}: {error}") from error
        if not isinstance(net, keras.layers.Layer):
            raise make_refusal(f"{path}: {name} returned {type(net).__name__}; it has to return a keras.Model.")
        try:
            return net(x)
        except Exception as error:
            shown = f"{type(error).__name__}: {error}"
            raise make_refusal(f"{path}: {name} cannot take rows of shape {card.network_shape}: {shown}") from error

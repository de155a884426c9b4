"""The start of a training: TensorFlow's settings, seeds, and a model of which it is known that it can be saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import keras
import tensorflow as tf

from shared.data import Dataset
from shared.distributed import Refusal
from shared.models import ModelCard
from shared.models.initial import differing_names, open_initial, refuse_other_shapes
from shared.models.keras import build_network, check_saveable
from shared.models.keras.package import read_weights, weight_arrays
from shared.settings.network import NetworkSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import PrecisionSettings
from shared.training.core.open_data import card_of_rows

_POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16", "fp64": "float64"}


def set_up(settings: TrainerSettings) -> None:
    """Settings of TensorFlow for this process; to be called before it computes anything."""
    if settings.precision.deterministic or not tf.config.list_physical_devices("GPU"):
        tf.config.experimental.enable_op_determinism()  # a resumed run ends with the same weights


def make_rows_model(
    network: NetworkSettings, precision: PrecisionSettings, seed: int, data: Dataset
) -> tuple[keras.Model, ModelCard]:
    """Build a model for images or tables; its first weights depend on the seed alone.

    Raises:
        Refusal: if it cannot be built or saved.
    """
    card = card_of_rows(network.architecture, data, "keras")
    keras.utils.set_random_seed(seed)
    dtype, code = _POLICIES[precision.precision], network.model_code
    if network.initial_model is not None:
        return make_initial_model(network.initial_model, card, dtype, code)
    return build_network(card, dtype, code), card


def try_saving(model: keras.Model, card: ModelCard, model_code: Path | None) -> None:
    """Show before the first step that the model can be saved: after the last one it would be too late.

    Raises:
        Refusal: if it cannot, or if a weight that trains has no part in the output.
    """
    check_saveable(model, card, model_code)
    rows = tf.zeros((2, *card.input_shape), card.input_dtype)
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(rows, training=False))
    found = tape.gradient(total, model.trainable_variables)
    unused = [
        variable.path for variable, gradient in zip(model.trainable_variables, found, strict=True) if gradient is None
    ]
    if unused:
        raise Refusal(
            f"{card.architecture} does not use {', '.join(unused[:5])}{' and more' * (len(unused) > 5)} for its "
            "output. Remove these weights, or set trainable=False on their layers."
        )


def make_initial_model(
    folder: Path, card: ModelCard, dtype: str, model_code: Path | None
) -> tuple[keras.Model, ModelCard]:
    """Build the model of a card with a saved model's weights, mean and deviation.

    A model for other classes, or another target, has a new head.

    Raises:
        Refusal: if the saved model does not fit; see ``shared.models.initial``.
    """
    file, card, new_head = open_initial(folder, card)
    state = read_weights(file)
    head: set[str] = set()
    if new_head:
        one_more = replace(card, classes=(*card.classes, "one more"))
        if not card.classes:
            one_more = replace(card, task="classification", classes=("a", "b"), target="", target_mean=0, target_std=1)
        head = differing_names(
            _shapes(build_network(card, dtype, model_code)), _shapes(build_network(one_more, dtype, model_code))
        )
    model = build_network(card, dtype, model_code)
    refuse_other_shapes(folder, {name: array.shape for name, array in state.items()}, _shapes(model), head)
    for number, weight in enumerate(model.weights):
        if str(number) not in head:
            weight.assign(state[str(number)])
    return model, card


def _shapes(model: keras.Model) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in weight_arrays(model).items()}

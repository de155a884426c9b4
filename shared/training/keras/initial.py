"""Begin with the weights of a Keras model that a trainer of this library has saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import keras

from shared.models import ModelCard
from shared.models.initial import differing_names, open_initial, refuse_other_shapes
from shared.models.keras import build_network
from shared.models.keras.package import read_weights, weight_arrays


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
        one_more = replace(card, classes=(*card.classes, "one more")) if card.classes else _two_classes(card)
        head = differing_names(
            _shapes(build_network(card, dtype, model_code)), _shapes(build_network(one_more, dtype, model_code))
        )
    model = build_network(card, dtype, model_code)
    refuse_other_shapes(folder, {name: array.shape for name, array in state.items()}, _shapes(model), head)
    for number, weight in enumerate(model.weights):
        if str(number) not in head:
            weight.assign(state[str(number)])
    return model, card


def _two_classes(card: ModelCard) -> ModelCard:
    return replace(card, task="classification", classes=("a", "b"), target="", target_mean=0.0, target_std=1.0)


def _shapes(model: keras.Model) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in weight_arrays(model).items()}

"""Saving a Keras model as a folder that MLflow serves, and reading it back: safetensors, JSON and code, no pickle.

The folder is that of `shared.models.package`, with this package as the code that rebuilds the network. Weights are
numbered in the model's own order, because the names that Keras gives depend on what was built before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from ..card import ModelCard  # noqa: TID252
from ..folder import WEIGHTS_NAME, begin_model, finish_model, open_model, write_weights  # noqa: TID252
from ..mlmodel import installed_versions  # noqa: TID252
from ..raw_rows import serve_table  # noqa: TID252
from ..stored import make_refusal, read_stored  # noqa: TID252
from .build import build_network

WeightArrays = Mapping[str, npt.NDArray[Any]]

_ROWS_AT_ONCE = 1024


def weight_arrays(model: keras.Model) -> dict[str, npt.NDArray[Any]]:
    """Take all weights of a model as arrays, by their number."""
    return {str(number): np.asarray(weight.numpy(), order="C") for number, weight in enumerate(model.weights)}


def load_weights(model: keras.Model, state: WeightArrays, source: str) -> None:
    """Put weights into a model.

    Raises:
        Refusal: if they do not fit; `source` names where they come from.
    """
    wanted = {str(number): tuple(weight.shape) for number, weight in enumerate(model.weights)}
    found = {name: array.shape for name, array in state.items()}
    if wanted != found:
        odd = next(name for name in {**wanted, **found} if wanted.get(name) != found.get(name))
        raise make_refusal(f"{source} does not fit the model: weight {odd} is {found.get(odd)}, not {wanted.get(odd)}.")
    for number, weight in enumerate(model.weights):
        weight.assign(state[str(number)])


def check_saveable(model: keras.Model, card: ModelCard, model_code: str | Path | None = None) -> None:
    """Show before the first step that a second model built from the card takes the weights.

    Raises:
        Refusal: if it does not.
    """
    load_weights(
        build_network(card, model_code=model_code),
        weight_arrays(model),
        f"A second {card.architecture}, built in the same way,",
    )


def save_model(folder: str | Path, model: keras.Model, card: ModelCard, model_code: str | Path | None = None) -> None:
    """Write a trained model as an MLflow model; what an earlier attempt left in the folder is replaced.

    `model_code` is the folder of the user's code, which is copied into the model; needed if `build_network` needed it.
    """
    write_weights(begin_model(folder), weight_arrays(model))
    finish_model(folder, card, _installed(), {"model_code": model_code})


def load_model(folder: str | Path) -> tuple[keras.Model, ModelCard]:
    """Read a folder that `save_model` wrote (or its ``artifacts/model``).

    Runs the user's code in the folder, if the architecture is the user's.

    Raises:
        Refusal: if the folder holds no such model, or a damaged one.
    """
    inside, card = open_model(folder)
    state = read_weights(inside / WEIGHTS_NAME)
    wide = any(array.dtype == np.float64 for array in state.values())
    users = inside / "model_code"
    model = build_network(card, "float64" if wide else "float32", users if users.is_dir() else None)
    load_weights(model, state, str(inside / WEIGHTS_NAME))
    return model, card


def read_weights(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the file of a saved model's weights.

    Raises:
        Refusal: if it is missing or damaged.
    """
    try:
        return dict(load(read_stored(file)))
    except (SafetensorError, OSError) as error:
        raise make_refusal(f"{file} cannot be read: {error}. Train and save the model again.") from error


def load_served(inside: Path) -> Callable[[Any], Any]:
    """Load a saved model as MLflow serves it: raw rows (N, *input_shape) to float32 logits or values (N, outputs).

    A model of a table takes the user's own rows.
    """
    model, card = load_model(inside)

    def serve(given: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        rows = np.array(given, dtype=card.input_dtype, ndmin=1 + len(card.input_shape))
        parts = [model(rows[start : start + _ROWS_AT_ONCE]) for start in range(0, len(rows), _ROWS_AT_ONCE)]
        return np.concatenate([np.asarray(part, np.float32) for part in parts])

    return serve_table(card, serve) if card.table else serve


def _installed() -> dict[str, str]:
    """What a serving environment needs; TensorFlow's build for CPUs serves models of any of its builds."""
    import tensorflow as tf

    return {"tensorflow-cpu": str(tf.__version__), **installed_versions(("keras", "safetensors", "numpy"))}

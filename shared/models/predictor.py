"""A saved model as a function of NumPy rows, whatever framework it was trained with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .card import ModelCard
from .refuse import make_refusal

_INSIDE = Path("artifacts", "model")

NumberArray = npt.NDArray[np.floating[Any]]
RowPredictor = Callable[[npt.NDArray[Any]], NumberArray]
"""Takes raw rows (N, *input_shape) as the dataset holds them; gives (N, outputs), float32 or wider.

That of a language model takes tokens (N, L) of any integer type and gives logits (N, L, vocabulary).
"""

TokenScorer = Callable[[npt.NDArray[Any]], tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]]
"""Takes rows of tokens (N, L + 1) of a language model's data; gives for each token but the first of a row its cross
entropy in nats, and whether it was the most probable one: (N, L) each."""

_EXTRAS = {"keras": "tensorflow", "transformers": "text"}
"""The extra of this library that brings a framework, where it has another name."""


def read_card(folder: str | Path) -> ModelCard:
    """Say what a saved model is, without loading it.

    Raises:
        Refusal: if the folder holds no model of this library.
    """
    path = Path(folder) / _INSIDE / "card.json"
    if not path.is_file():
        raise make_refusal(f"{folder} holds no model of this library: there is no {_INSIDE}/card.json.")
    return ModelCard.from_json(path.read_text(encoding="utf-8"), str(path))


def tokenizer_of_model(folder: str | Path, card: ModelCard) -> str:
    """The same for the same tokenizer: the sha256 of its file in a saved model; ``bytes`` where there is none."""
    places = (Path(folder) / _INSIDE / name / "tokenizer.json" for name in ("tokenizer", "huggingface"))
    found = next((place for place in places if place.is_file()), None)
    return card.tokenizer if found is None else hashlib.sha256(found.read_bytes()).hexdigest()


def load_predictor(folder: str | Path, device: Any) -> tuple[RowPredictor, ModelCard]:
    """Read a model that any of the trainers saved.

    Args:
        folder: the model's folder.
        device: the ``torch.device`` for a model of torch; TensorFlow chooses its own.

    Raises:
        Refusal: if the folder holds no such model, a damaged one, or one whose framework is not installed.
    """
    card = read_card(folder)
    with _framework(folder, card):
        return _with_keras(Path(folder)) if card.framework == "keras" else _with_torch(Path(folder), device)


def load_scorer(folder: str | Path, device: Any) -> TokenScorer:
    """Read a language model to measure it where it computes: its logits are too many to be copied.

    Raises:
        Refusal: see `load_predictor`.
    """
    import torch
    from torch.nn import functional

    with _framework(folder, read_card(folder)):
        module, _ = _module(Path(folder), device)

    def score(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        tokens = torch.from_numpy(rows.astype(np.int64)).to(device)
        with torch.inference_mode():
            logits, following = module(tokens[:, :-1]), tokens[:, 1:]
            nats = functional.cross_entropy(logits.flatten(0, 1).float(), following.flatten(), reduction="none")
            right = logits.argmax(-1) == following
        return nats.view_as(following).cpu().numpy(), right.cpu().numpy()

    return score


@contextmanager
def _framework(folder: str | Path, card: ModelCard) -> Iterator[None]:
    """Say which package is missing for a model."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise make_refusal(
            f"{folder} is a model of {card.framework}, and {error.name} is not installed: "
            f'pip install "allranks[{_EXTRAS.get(card.framework, card.framework)}]", or use an environment that has it.'
        ) from error


def _module(folder: Path, device: Any) -> tuple[Any, ModelCard]:
    """Load a module of torch onto a device."""
    if read_card(folder).framework == "transformers":
        from .transformers import load_model as load
    else:
        from .package import load_model as load  # type: ignore[assignment]  # another kind of module

    module, card = load(folder)
    return module.to(device).eval(), card


def _with_torch(folder: Path, device: Any) -> tuple[RowPredictor, ModelCard]:
    import torch

    module, card = _module(folder, device)

    def predict(rows: npt.NDArray[Any]) -> NumberArray:
        rows = rows.astype(np.int64) if card.vocabulary else rows  # an embedding looks up no smaller type
        with torch.inference_mode():
            outputs = module(torch.from_numpy(rows).to(device))
        wide = outputs if outputs.dtype == torch.float64 else outputs.float()
        result: NumberArray = wide.cpu().numpy()
        return result

    return predict, card


def _with_keras(folder: Path) -> tuple[RowPredictor, ModelCard]:
    from .keras import load_model

    model, card = load_model(folder)

    def predict(rows: npt.NDArray[Any]) -> NumberArray:
        return np.asarray(model(rows, training=False))

    return predict, card

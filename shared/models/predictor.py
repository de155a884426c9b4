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
from .stored import make_refusal, read_stored

_INSIDE = Path("artifacts", "model")

NumberArray = npt.NDArray[np.floating[Any]]
RowPredictor = Callable[[npt.NDArray[Any]], NumberArray]
"""Takes raw rows (N, *input_shape) as the dataset holds them; gives (N, outputs), float32 or wider.

That of a language model takes tokens (N, L) of any integer type and gives logits (N, L, vocabulary).
"""


def read_card(folder: str | Path) -> ModelCard:
    """Say what a saved model is, without loading it.

    Raises:
        Refusal: if the folder holds no model of this library.
    """
    path = Path(folder) / _INSIDE / "card.json"
    if not path.is_file():
        raise make_refusal(f"{folder} holds no model of this library: there is no {_INSIDE}/card.json.")
    return ModelCard.read(path)


def tokenizer_of_model(folder: str | Path, card: ModelCard) -> str:
    """The same for the same tokenizer: the sha256 of its file in a saved model; ``bytes`` where there is none."""
    places = (Path(folder) / _INSIDE / name / "tokenizer.json" for name in ("tokenizer", "huggingface"))
    found = next((place for place in places if place.is_file()), None)
    return card.tokenizer if found is None else hashlib.sha256(read_stored(found)).hexdigest()


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


class LanguageModel:
    """A language model to be measured where it computes: its logits are too many to be copied."""

    def __init__(self, module: Any, device: Any) -> None:
        self._module, self._device = module, device

    def score(self, rows: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Measure rows of tokens (N, L + 1).

        Gives for each token but the first of a row its cross entropy in nats, and whether it was the most probable one:
        (N, L) each.
        """
        import torch
        from torch.nn import functional

        tokens = torch.from_numpy(rows.astype(np.int64)).to(self._device)
        with torch.inference_mode():
            logits, following = self._module(tokens[:, :-1]), tokens[:, 1:]
            nats = functional.cross_entropy(logits.flatten(0, 1).float(), following.flatten(), reduction="none")
            right = logits.argmax(-1) == following
        return nats.view_as(following).cpu().numpy(), right.cpu().numpy()

    def sample(
        self, prompt: npt.NDArray[np.int64], count: int, seed: int, vocabulary: int, end_of_text: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Continue a prompt (L,) by up to `count` tokens, drawn by their probability; an end of text is the last.

        Drawn are those below `vocabulary`: a model may have more than its tokenizer. The draws are NumPy's, on the CPU
        and in float64, so that they follow from the seed and the logits on any device. Gives the tokens and their cross
        entropies in nats. The whole text is computed anew for each token, since no model here keeps keys and values.
        """
        import torch

        random, tokens, nats = np.random.default_rng((seed,)), prompt.astype(np.int64), []
        for _ in range(count):
            with torch.inference_mode():
                logits = self._module(torch.from_numpy(tokens[None]).to(self._device))[0, -1].double().cpu().numpy()
            shifted = logits - logits.max()
            log_probability = shifted - np.log(np.exp(shifted).sum())
            sums = np.exp(log_probability[:vocabulary]).cumsum()
            drawn = int(np.searchsorted(sums, random.random() * sums[-1], side="right").clip(max=len(sums) - 1))
            tokens = np.append(tokens, drawn)
            nats.append(-log_probability[drawn])
            if drawn == end_of_text:
                break
        return tokens[len(prompt) :].astype(np.int64), np.array(nats, np.float64)


def load_language_model(folder: str | Path, device: Any) -> LanguageModel:
    """Read a language model that any of the trainers saved.

    Raises:
        Refusal: see `load_predictor`.
    """
    with _framework(folder, read_card(folder)):
        module, _ = _module(Path(folder), device)
    return LanguageModel(module, device)


@contextmanager
def _framework(folder: str | Path, card: ModelCard) -> Iterator[None]:
    """Say which package is missing for a model."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise make_refusal(
            f"{folder} is a model of {card.framework}, and {error.name} is not installed: "
            f"pip install {error.name}, or use an environment that has it."
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

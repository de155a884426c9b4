"""A saved model as a function of NumPy rows, whatever framework it was trained with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .card import Card
from .refuse import refusal

Outputs = npt.NDArray[np.floating[Any]]
Predictor = Callable[[npt.NDArray[Any]], Outputs]
"""Takes raw rows (N, *input_shape) as the dataset holds them; gives (N, outputs), float32 or wider."""


def load_predictor(folder: str | Path, device: Any) -> tuple[Predictor, Card]:
    """Read a model that any of the trainers saved.

    Args:
        folder: the model's folder.
        device: the ``torch.device`` for a model of torch; TensorFlow chooses its own.

    Raises:
        Refusal: if the folder holds no such model, a damaged one, or one whose framework is not installed.
    """
    folder = Path(folder)
    path = folder / "artifacts" / "model" / "card.json"
    if not path.is_file():
        raise refusal(f"{folder} holds no model of this library: there is no artifacts/model/card.json.")
    framework = Card.from_json(path.read_text(encoding="utf-8"), str(path)).framework
    try:
        return _with_torch(folder, device) if framework == "torch" else _with_keras(folder)
    except ModuleNotFoundError as error:
        package = "torch" if framework == "torch" else "tensorflow"
        raise refusal(
            f"{folder} is a model of {framework}, and {error.name} is not installed: "
            f'pip install "allranks[{package}]", or use an environment that has it.'
        ) from error


def _with_torch(folder: Path, device: Any) -> tuple[Predictor, Card]:
    import torch

    from .package import load_model

    module, card = load_model(folder)
    module.to(device).eval()

    def predict(rows: npt.NDArray[Any]) -> Outputs:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(rows).to(device))
        wide = outputs if outputs.dtype == torch.float64 else outputs.float()
        result: Outputs = wide.cpu().numpy()
        return result

    return predict, card


def _with_keras(folder: Path) -> tuple[Predictor, Card]:
    from .keras import load_model

    model, card = load_model(folder)

    def predict(rows: npt.NDArray[Any]) -> Outputs:
        return np.asarray(model(rows, training=False))

    return predict, card

"""Saving a model of transformers as a folder that MLflow serves, and reading it back: safetensors, JSON and code.

The folder is that of `shared.models.package`, with the model's own folder in place of the weights::

    artifacts/model/card.json
    artifacts/model/huggingface/        config.json, model.safetensors and tokenizer.json: what from_pretrained reads
    artifacts/model/zoo/                a copy of this package
"""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError

from ..card import LANGUAGE_MODELING, Card  # noqa: TID252
from ..mlmodel import environment_files, mlmodel  # noqa: TID252
from ..refuse import refusal  # noqa: TID252
from .module import TokenModel

CARD: Final = "card.json"
INSIDE: Final = Path("artifacts", "model")
HUGGINGFACE: Final = "huggingface"
TOKENIZER: Final = ("tokenizer.json", "tokenizer_config.json")
NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pandas")


def save_model(
    folder: str | Path, net: Any, state: Mapping[str, torch.Tensor], card: Card, tokenizer: str | Path | None
) -> None:
    """Write a trained model as an MLflow model; what an earlier attempt left in the folder is replaced.

    Args:
        folder: where to; made if needed.
        net: the ``PreTrainedModel``.
        state: its weights, whole.
        card: what it is.
        tokenizer: folder with `tokenizer.json`; None for bytes.
    """
    folder, inside = Path(folder), Path(folder) / INSIDE
    shutil.rmtree(inside, ignore_errors=True)
    inside.mkdir(parents=True)
    net.save_pretrained(inside / HUGGINGFACE, state_dict=dict(state))
    for name in TOKENIZER if tokenizer is not None else ():
        if (source := Path(tokenizer or "") / name).is_file():
            shutil.copyfile(source, inside / HUGGINGFACE / name)
    (inside / CARD).write_text(card.to_json(), encoding="utf-8")
    package = Path(__file__).parent
    shutil.copytree(package.parent, inside / "zoo", ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*"))
    shutil.copyfile(package / "serve.py", folder / "serve.py")
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in NEEDED}
    for name, text in environment_files(platform.python_version(), installed).items():
        (folder / name).write_text(text, encoding="utf-8")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    (folder / "MLmodel").write_text(mlmodel(card, platform.python_version(), size), encoding="utf-8")


def load_model(folder: str | Path) -> tuple[TokenModel, Card]:
    """Read a folder that `save_model` wrote (or its ``artifacts/model``), in eval mode on the CPU.

    Raises:
        Refusal: if the folder holds no such model, or a damaged one.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    folder = Path(folder)
    inside = folder if (folder / CARD).is_file() else folder / INSIDE
    if not (inside / CARD).is_file():
        raise refusal(f"{folder} holds no model of this library: there is no {INSIDE / CARD}.")
    card = Card.from_json((inside / CARD).read_text(encoding="utf-8"), str(inside / CARD))
    kind = AutoModelForCausalLM if card.task == LANGUAGE_MODELING else AutoModelForSequenceClassification
    try:
        net = kind.from_pretrained(
            inside / HUGGINGFACE,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise refusal(f"{inside / HUGGINGFACE} cannot be read: {error}. Train and save the model again.") from error
    padding = None if card.task == LANGUAGE_MODELING else int(net.config.pad_token_id)
    return TokenModel(net, padding).eval(), card

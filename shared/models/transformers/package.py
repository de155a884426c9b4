"""Saving a model of transformers as a folder that MLflow serves, and reading it back: safetensors, JSON and code.

The folder is that of `shared.models.package`, with the model's own folder in place of the weights::

    artifacts/model/card.json
    artifacts/model/huggingface/        config.json, model.safetensors and tokenizer.json: what from_pretrained reads
    artifacts/model/zoo/                a copy of this package
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from safetensors import SafetensorError

from ..card import LANGUAGE_MODELING, ModelCard  # noqa: TID252
from ..folder import begin_model, finish_model, open_model  # noqa: TID252
from ..mlmodel import installed_versions  # noqa: TID252
from ..refuse import make_refusal  # noqa: TID252
from .module import TokenModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_HUGGINGFACE: Final = "huggingface"
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json")
_NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "pandas")


def save_model(
    folder: str | Path,
    net: PreTrainedModel,
    state: Mapping[str, torch.Tensor],
    card: ModelCard,
    tokenizer: str | Path | None,
) -> None:
    """Write a trained model as an MLflow model; what an earlier attempt left in the folder is replaced.

    Args:
        folder: where to; made if needed.
        net: the model.
        state: its weights, whole.
        card: what it is.
        tokenizer: folder with `tokenizer.json`; None for bytes.
    """
    inside = begin_model(folder)
    net.save_pretrained(inside / _HUGGINGFACE, state_dict=dict(state))
    for name in _TOKENIZER_FILES if tokenizer is not None else ():
        if (source := Path(tokenizer or "") / name).is_file():
            shutil.copyfile(source, inside / _HUGGINGFACE / name)
    finish_model(folder, card, Path(__file__).with_name("serve.py"), installed_versions(_NEEDED))


def load_model(folder: str | Path) -> tuple[TokenModel, ModelCard]:
    """Read a folder that `save_model` wrote (or its ``artifacts/model``), in eval mode on the CPU.

    Raises:
        Refusal: if the folder holds no such model, or a damaged one.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    inside, card = open_model(folder)
    kind = AutoModelForCausalLM if card.task == LANGUAGE_MODELING else AutoModelForSequenceClassification
    try:
        net: PreTrainedModel = kind.from_pretrained(
            inside / _HUGGINGFACE,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise make_refusal(
            f"{inside / _HUGGINGFACE} cannot be read: {error}. Train and save the model again."
        ) from error
    padding = None if card.task == LANGUAGE_MODELING else int(net.config.pad_token_id)
    return TokenModel(net, padding).eval(), card

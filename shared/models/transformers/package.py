"""A model of transformers as a folder that MLflow serves, and reading it back: safetensors, JSON and code.

The folder is that of `shared.models.package`, with the model's own folder in place of the weights::

    artifacts/model/card.json
    artifacts/model/huggingface/        config.json, model.safetensors and tokenizer.json: what from_pretrained reads
    artifacts/model/zoo/                a copy of this package
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
import torch

from ..card import LANGUAGE_MODELING, ModelCard  # noqa: TID252
from ..decoder import MOST_LAYERS  # noqa: TID252
from ..folder import HUGGINGFACE_NAME, INSIDE, copy_tokenizer, finish_model, open_model  # noqa: TID252
from ..mlmodel import installed_versions  # noqa: TID252
from ..stored import make_refusal  # noqa: TID252
from .module import TokenModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedConfig, PreTrainedModel

_ROWS_AT_ONCE: Final = 64
_NEEDED: Final = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


def finish_transformer(folder: str | Path, card: ModelCard, tokenizer: str | Path | None) -> None:
    """Make an MLflow model of the folder in whose `HUGGINGFACE_NAME` a trained model lies.

    `tokenizer` is a folder with `tokenizer.json`, or None for bytes.
    """
    copy_tokenizer(tokenizer, Path(folder) / INSIDE / HUGGINGFACE_NAME)
    finish_model(folder, card, installed_versions(_NEEDED))


def load_model(folder: str | Path) -> tuple[TokenModel, ModelCard]:
    """Read a saved model's folder (or its ``artifacts/model``), in eval mode on the CPU.

    Raises:
        Refusal: if the folder holds no such model, or a damaged one.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    inside, card = open_model(folder)
    kind: Any = AutoModelForCausalLM if card.task == LANGUAGE_MODELING else AutoModelForSequenceClassification
    try:
        saved = inside / HUGGINGFACE_NAME
        config = AutoConfig.from_pretrained(saved, local_files_only=True, trust_remote_code=False)
        check_layers(config)
        net: PreTrainedModel
        net, found = kind.from_pretrained(
            saved,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
        padding = None if card.task == LANGUAGE_MODELING else int(net.config.pad_token_id)
    except ImportError:
        raise
    except Exception as error:  # a damaged configuration ends transformers with any of them
        why = " ".join(str(error).split())[:400]
        raise make_refusal(
            f"{inside / HUGGINGFACE_NAME} cannot be read: {why}. Train and save the model again."
        ) from error
    if missing := sorted(found["missing_keys"]):  # transformers would put random ones in their place
        raise make_refusal(
            f"The weights in {inside / HUGGINGFACE_NAME} are not those of its config.json: {len(missing)} are missing, "
            f"such as {', '.join(missing[:3])}. Train and save the model again."
        )
    return TokenModel(net, padding, int(card.settings.get("separator", -1))).eval(), card


def check_layers(config: PreTrainedConfig) -> None:
    """Raise ValueError for more layers than any model has: each is built, which a stranger's number makes endless."""
    for name, value in config.to_dict().items():
        if ("layers" in name or name == "n_layer") and isinstance(value, int) and value > MOST_LAYERS:
            raise ValueError(f"{name} {value} is no whole number up to {MOST_LAYERS:,}")


def load_served(inside: Path) -> ServedText:
    """Load a saved model as MLflow serves it."""
    module, card = load_model(inside)
    if card.tokenizer == "bytes":
        return ServedText(module, card, None)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(inside / HUGGINGFACE_NAME / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(card.sequence_length)
    return ServedText(module, card, tokenizer)


class ServedText:
    """Takes texts or their tokens and returns one logit for each class; of a language model, for each next token.

    Texts that are longer than what the model was trained with are cut. Without a tokenizer their bytes are the tokens.
    """

    def __init__(self, module: TokenModel, card: ModelCard, tokenizer: Tokenizer | None) -> None:
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._module, self._length, self._tokenizer = module.to(self._device), card.sequence_length, tokenizer
        self._padding = int(cast("PreTrainedModel", module.net).config.pad_token_id or 0)

    def __call__(self, given: Any) -> npt.NDArray[np.float32]:
        """Compute float32 logits (N, classes), or (N, longest, vocabulary).

        `given` is a DataFrame with a column ``text`` or ``tokens``, a list of texts, or an array of tokens (N, L),
        filled up with the padding token.
        """
        rows = self._tokens(given)
        padded = np.full((len(rows), max(map(len, rows), default=1)), self._padding, np.int64)
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        with torch.inference_mode():
            split: Sequence[torch.Tensor] = torch.from_numpy(padded).split(_ROWS_AT_ONCE)
            return torch.cat([self._module(part.to(self._device)).float().cpu() for part in split]).numpy()

    def _tokens(self, given: Any) -> list[npt.NDArray[np.int64]]:
        if hasattr(given, "columns"):
            column = "tokens" if "tokens" in given.columns and given["tokens"].notna().all() else "text"
            given = given[column].tolist()
        rows: Sequence[str] | Sequence[Sequence[int]] = given
        if len(rows) and isinstance(rows[0], str):
            rows = self._encode(cast("Sequence[str]", rows))
        return [np.asarray(row, np.int64) for row in rows]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._tokenizer is None:
            return [list(text.encode()[: self._length]) for text in texts]
        return [one.ids for one in self._tokenizer.encode_batch(list(texts))]

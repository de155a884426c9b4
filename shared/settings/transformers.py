"""Which model train_transformers trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from shared.settings.fields import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModelSettings:
    """A model of Hugging Face's to go on from, or one that begins with random weights."""

    base_model: Annotated[
        Path | None,
        Input(
            "Folder with the model to go on from: config.json, model.safetensors and tokenizer.json, as "
            "save_pretrained writes them. A head for the data's classes is new if the model has none. Leave it empty "
            "to begin with random weights.",
            is_identity=True,
        ),
    ] = None
    base_config: Annotated[
        Path | None,
        Input(
            "Folder with the config.json of a model that begins with random weights. Leave it empty as well for a "
            "small model: 2 layers of ModernBERT to classify, 4 of Llama to write, with vectors of 128.",
            is_identity=True,
        ),
    ] = None

"""Which model train_transformers trains."""

from __future__ import annotations

from pathlib import Path

from shared.settings.fields import input_port, settings_class


@settings_class
class BaseModelSettings:
    """A model of Hugging Face's to go on from, or one that begins with random weights."""

    base_model: Path | None = input_port(
        "Folder with the model to go on from: config.json, model.safetensors and tokenizer.json, as save_pretrained "
        "writes them. A head for the data's classes is new if the model has none. Leave it empty to begin with random "
        "weights.",
        default=None,
        is_identity=True,
    )
    base_config: Path | None = input_port(
        "Folder with the config.json of a model that begins with random weights. Leave it empty as well for a small "
        "model: 2 layers of ModernBERT to classify, 4 of Llama to write, with vectors of 128.",
        default=None,
        is_identity=True,
    )

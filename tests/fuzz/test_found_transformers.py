"""What ``make fuzz`` has found in models of transformers: a refusal, and no random weights in the place of lost ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from shared.data import Dataset
from shared.distributed import Refusal
from shared.models.transformers import load_model
from shared.settings.network import BaseModelSettings
from shared.settings.training import PrecisionSettings
from tests.fuzz.targets import transformer_seeds

pytestmark = pytest.mark.slow  # transformers takes seconds to be imported


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    transformer_seeds(tmp_path)
    load_model(tmp_path / "model")
    return tmp_path / "model" / "artifacts" / "model" / "huggingface"


def change(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


@pytest.mark.parametrize(
    "values",
    [{"hidden_size": {"path": []}}, {"vocab_size": 10**30}, {"pad_token_id": None}, {"num_hidden_layers": 2**31}],
)
def test_a_damaged_configuration_of_a_saved_model_is_refused(saved: Path, values: dict[str, Any]) -> None:
    change(saved, **values)
    with pytest.raises(Refusal, match=r"huggingface cannot be read: .* Train and save the model again"):
        load_model(saved.parents[2])


def test_a_saved_model_that_lost_a_weight_is_refused(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    del tensors["bert.embeddings.LayerNorm.weight"]
    save_file(tensors, saved / "model.safetensors", {"format": "pt"})
    with pytest.raises(Refusal, match=r"1 are missing, such as bert\.embeddings\.LayerNorm\.weight"):
        load_model(saved.parents[2])


@pytest.mark.parametrize(
    "values", [{"hidden_size": {"path": []}}, {"architectures": [5]}, {"num_hidden_layers": 2**31}]
)
def test_a_damaged_configuration_of_a_base_model_is_refused(saved: Path, values: dict[str, Any]) -> None:
    from shared.training.transformers.start import make_base_model

    change(saved, **values)
    data = Dataset.open(saved.parents[3] / "data")
    with pytest.raises(Refusal, match="cannot be used for text_classification"):
        make_base_model(BaseModelSettings(base_model=saved, base_config=None), PrecisionSettings(), 0, data)

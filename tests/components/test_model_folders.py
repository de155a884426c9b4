"""Models of text in and out of transformers' folders: the same logits, the same weights, however they are divided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shared.data import Dataset
from shared.models.predictor import load_predictor
from tests.components.support import run_component
from tests.components.training import arguments, furthest, lines, train, weights
from tests.shared.samples import write_language_dataset

OPTIONS: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "batch_size": 16, "epochs": 1, "log_every": 1}
FILES = 0.0002
"""200 kB: the models here have several files."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_dataset(tmp_path_factory.mktemp("text"), rows=(48, 8, 8))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that transformers has made and saved: in several files, with all that may differ from ours."""
    from transformers import LlamaConfig, LlamaForCausalLM

    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 4.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8}
    sizes = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    torch.manual_seed(3)
    net = LlamaForCausalLM(LlamaConfig(**sizes, **heads, rms_norm_eps=1e-3, rope_parameters=rope))
    folder = tmp_path_factory.mktemp("llama")
    net.save_pretrained(folder, max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def folder_of(out: Path) -> Path:
    """What transformers loads of a trained model."""
    return out / "model" / "artifacts" / "model" / "huggingface"


def rows_of(text: Path) -> np.ndarray[Any, Any]:
    rows: np.ndarray[Any, Any] = Dataset.open(text).split("test").take(np.arange(8))["x"][:, :-1]
    return rows


def logits_by_transformers(folder: Path, rows: np.ndarray[Any, Any]) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.inference_mode():
        logits: torch.Tensor = net.eval()(torch.from_numpy(rows.astype(np.int64))).logits
    return logits


def check_same_logits(out: Path, text: Path, tolerance: float = 1e-5) -> None:
    """Compare what transformers computes with the saved folder and what our own reader of it does."""
    rows = rows_of(text)
    predict, _ = load_predictor(out / "model", torch.device("cpu"))
    ours, theirs = torch.from_numpy(predict(rows)), logits_by_transformers(folder_of(out), rows).float()
    assert (ours - theirs).abs().max() < tolerance


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("train_fsdp", {"processes": 2, "tensor_parallel": 2, "key_value_heads": 2}),
        pytest.param(
            "train_fsdp",
            {"processes": 2, "pipeline_parallel": 2, "accumulation_steps": 2},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "train_deepspeed", {"processes": 2, "zero_stage": 2, "tie_embeddings": "true"}, marks=pytest.mark.exhaustive
        ),
        pytest.param("train_deepspeed", {"processes": 2, "zero_stage": 3}, marks=pytest.mark.exhaustive),
    ],
)
def test_transformers_loads_what_was_trained_and_says_the_same(
    script: str, options: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    options = OPTIONS | options | {"script": script, "width": 64}
    train(text, tmp_path, **options, max_shard_gb=FILES)
    files = sorted(path.name for path in folder_of(tmp_path).iterdir())
    assert files[0] == "config.json"
    assert files[-1] == "model.safetensors.index.json"
    assert len(files) > 3
    check_same_logits(tmp_path, text)
    train(text, tmp_path, **options, model_weights="bf16")
    assert sorted(path.name for path in folder_of(tmp_path).iterdir()) == ["config.json", "model.safetensors"]
    assert {tensor.dtype for tensor in weights(tmp_path).values()} == {torch.bfloat16}
    check_same_logits(tmp_path, text, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("train_fsdp", {"processes": 3}),
        pytest.param(
            "train_fsdp",
            {"processes": 4, "tensor_parallel": 2, "pipeline_parallel": 2, "accumulation_steps": 2},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("train_deepspeed", {"processes": 2, "zero_stage": 1}, marks=pytest.mark.exhaustive),
        pytest.param("train_deepspeed", {"processes": 3, "zero_stage": 3}, marks=pytest.mark.exhaustive),
        pytest.param("train_transformers", {"processes": 2}, marks=pytest.mark.exhaustive),
        pytest.param("train_transformers", {"processes": 3, "sharding": "fsdp"}, marks=pytest.mark.exhaustive),
        pytest.param("train_transformers", {"processes": 2, "sharding": "deepspeed"}, marks=pytest.mark.exhaustive),
    ],
)
def test_a_model_of_transformers_trains_here(
    script: str, options: dict[str, Any], text: Path, llama: Path, tmp_path: Path
) -> None:
    rows = rows_of(text)
    options = {"script": script, "base_model": llama, "batch_size": 12, "epochs": 1, "log_every": 1} | options
    train(text, tmp_path / "still", **options, learning_rate=0, max_shard_gb=FILES)
    expected = logits_by_transformers(llama, rows)
    assert torch.equal(expected, logits_by_transformers(folder_of(tmp_path / "still"), rows))
    check_same_logits(tmp_path / "still", text)
    shown = [line["metrics"]["loss"] for line in lines(tmp_path / "still") if "loss" in line["metrics"]]
    assert len(shown) == 4
    train(text, tmp_path / "moved", **options, learning_rate=0.01)
    assert furthest(weights(tmp_path / "still"), weights(tmp_path / "moved")) > 1e-3
    config = json.loads((folder_of(tmp_path / "moved") / "config.json").read_text())
    rope = config.get("rope_scaling") or config["rope_parameters"]
    assert (config["rms_norm_eps"], rope["factor"]) == (1e-3, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, {"width": 64, "heads": 8}, "width 64 is asked for, and it has 32; heads 8 is asked for, and it has 4"),
        ({"attention_bias": True, "hidden_act": "gelu"}, {}, "hidden_act is 'gelu', the decoder's 'silu'; attention_b"),
        ({"vocab_size": 200}, {}, "vocabulary has 257 tokens, that of base_model 200"),
        ({"max_position_embeddings": 8}, {}, "longer than the model's context of 8"),
        ({"intermediate_size": 64}, {}, "model.layers.0.mlp.gate_proj.weight [64, 32] is [56, 32]"),
        (None, {}, "config.json"),
    ],
)
def test_a_base_that_does_not_fit_is_one_clear_message(
    change: dict[str, Any] | None, options: dict[str, Any], words: str, text: Path, llama: Path, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for path in llama.iterdir():
        if path.name != "config.json":
            (base / path.name).symlink_to(path)
    if change is not None:
        config = json.loads((llama / "config.json").read_text()) | change
        (base / "config.json").write_text(json.dumps(config))
    given = arguments(text, tmp_path, base_model=base, batch_size=12, **options)
    done = run_component("train_fsdp", *given, folder=tmp_path)
    assert set(done.codes) == {2}
    assert "Traceback" not in done.output
    assert words in done.output
    assert not (tmp_path / "model").exists()

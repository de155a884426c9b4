"""train_transformers: the same result on any ranks and however sharded, the same bits after a kill, no pickle read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from shared.data import Dataset
from shared.distributed import Refusal
from shared.models.predictor import load_predictor
from tests.components.support import run_apart
from tests.components.training import bit_equal, check_times, furthest, kill_at, train, weights
from tests.shared.samples import write_language_dataset, write_text_classification_dataset

TINY = {
    "model_type": "bert",
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
OPTIONS = {"script": "train_transformers", "epochs": 2, "batch_size": 12, "learning_rate": 0.001, "log_every": 1}


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text_classification_dataset(tmp_path_factory.mktemp("passages"))


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_dataset(tmp_path_factory.mktemp("sentences"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration without dropout, so that results can be compared."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture(scope="module")
def with_dropout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of which two ranks draw random numbers."""
    folder = tmp_path_factory.mktemp("dropout")
    config = {name: value for name, value in TINY.items() if "dropout" not in name}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_ranks_passes_and_sharding_do_not_change_the_result(
    passages: Path, tiny: Path, tmp_path: Path, exhaustive: bool
) -> None:
    options = {**OPTIONS, "base_config": tiny}
    parts = {"accumulation_steps": 3, "gradient_checkpointing": "true"}
    train(passages, tmp_path / "one", **options)
    for sharding in ("fsdp", "deepspeed") if exhaustive else ("fsdp",):
        train(passages, tmp_path / sharding, **options, **parts, sharding=sharding, processes=2)
        assert furthest(weights(tmp_path / "one"), weights(tmp_path / sharding)) < 1e-5, sharding


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_killed_training_ends_with_the_same_bits(passages: Path, tmp_path: Path) -> None:
    options = {
        **OPTIONS,
        "processes": 3,
    }  # the built-in model, with dropout; from 3 ranks on, another order is other bits
    train(passages, tmp_path / "whole", **options)
    kill_at(8, passages, tmp_path / "killed", **options, checkpoint_every=3)
    results = train(passages, tmp_path / "killed", **options, checkpoint_every=3)
    assert "continuing from" in results[0].stdout
    assert bit_equal(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    files = {path.suffix for path in (tmp_path / "killed" / "checkpoints").rglob("*") if path.is_file()}
    assert files == {".json", ".safetensors"}, "no pickle"


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["fsdp", pytest.param("deepspeed", marks=pytest.mark.exhaustive)])
def test_a_sharded_training_goes_on_with_the_same_bits(
    sharding: str, passages: Path, with_dropout: Path, tmp_path: Path
) -> None:
    options = {**OPTIONS, "base_config": with_dropout, "sharding": sharding, "processes": 2, "checkpoint_every": 9}
    train(passages, tmp_path / "whole", **options)
    before = tmp_path / "whole" / "checkpoints"
    newest = max(before.glob("step-00000010/rank-00001-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-33] + b"\xff" + newest.read_bytes()[-32:])  # a value, not its hash
    results = train(passages, tmp_path / "again", **options, resume_from=before)
    assert "step-00000010 is passed over: the sha256 of " in results[0].stderr
    assert "continuing from" in results[0].stdout
    assert bit_equal(weights(tmp_path / "whole"), weights(tmp_path / "again"))
    check_times(tmp_path / "whole" / "metrics")


@pytest.mark.slow
def test_a_classifier_is_saved_served_and_gone_on_from(passages: Path, tmp_path: Path) -> None:
    train(passages, tmp_path / "first", **{**OPTIONS, "learning_rate": 0.01})
    model = tmp_path / "first" / "model"
    history = json.loads((tmp_path / "first" / "metrics" / "metrics.json").read_text())["history"]
    assert [entry["epoch"] for entry in history] == [1, 2]
    split = Dataset.open(passages).split("test")
    taken = split.take(np.arange(split.rows))
    predict, card = load_predictor(model, "cpu")
    assert (card.task, card.classes, card.tokenizer) == ("text_classification", ("animal", "tool"), "bytes")
    expected = predict(taken["x"])
    assert (expected.argmax(1) == taken["y"]).mean() > 0.9
    alone = predict(taken["x"][:1, : taken["lengths"][0]])
    assert np.allclose(alone, expected[:1], atol=1e-5), "padding has no part in it"

    texts = [bytes(row[:length].tolist()).decode() for row, length in zip(taken["x"], taken["lengths"], strict=True)]
    (tmp_path / "texts.json").write_text(json.dumps([texts, [list(text.encode()) for text in texts]]))
    code = f"""
import json, mlflow, pandas
texts, tokens = json.load(open({str(tmp_path / "texts.json")!r}))
model = mlflow.pyfunc.load_model({str(model)!r})
print(model.predict(pandas.DataFrame({{"text": texts}})).tolist())
print(model.predict(pandas.DataFrame({{"tokens": tokens}})).tolist())
"""
    said = run_apart(code, framework="transformers", folder=tmp_path)  # the saved model needs nothing of the library
    for line in said.splitlines()[-2:]:
        assert np.allclose(json.loads(line), expected, atol=1e-5)

    folder = model / "artifacts" / "model" / "huggingface"  # what from_pretrained reads is a base model again
    train(passages, tmp_path / "second", **{**OPTIONS, "epochs": 1, "learning_rate": 0}, base_model=folder)
    assert furthest(weights(tmp_path / "first"), weights(tmp_path / "second")) == 0


@pytest.mark.slow
def test_a_language_model_learns_and_resumes_after_its_end(sentences: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "batch_size": 16, "epochs": 3, "learning_rate": 0.003}
    train(sentences, tmp_path, **options)
    before = weights(tmp_path)
    history = json.loads((tmp_path / "metrics" / "metrics.json").read_text())["history"]
    assert history[-1]["validation_bits_per_byte"] < 0.95 * history[0]["validation_bits_per_byte"]
    result = train(sentences, tmp_path, **options)[0]
    assert "continuing from" in result.stdout
    assert "epoch 3/3" not in result.stdout
    assert bit_equal(before, weights(tmp_path))
    predict, card = load_predictor(tmp_path / "model", "cpu")
    rows = Dataset.open(sentences).split("test").take(np.arange(2))["x"][:, :-1]
    assert predict(rows).shape == (*rows.shape, card.vocabulary)


# ---- What cannot be: in this process, because a start of ranks for each would take seconds


@pytest.fixture(scope="module")
def model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a head for the data's classes."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = tmp_path_factory.mktemp("model")
    config = AutoConfig.from_pretrained(tiny, id2label={0: "animal", 1: "tool"}, label2id={"animal": 0, "tool": 1})
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder


def make(data: Path, base_model: Path | None = None, base_config: Path | None = None) -> Any:
    from shared.settings.network import BaseModelSettings
    from shared.settings.training import PrecisionSettings
    from shared.training.transformers.start import make_base_model

    base = BaseModelSettings(base_model=base_model, base_config=base_config)
    return make_base_model(base, PrecisionSettings(), 0, Dataset.open(data))


def edit(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps(config))

    return change


def to_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    from safetensors.torch import save_file

    save_file({name: value for name, value in state.items() if "layer.1" not in name}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (to_pickle, "pytorch_model.bin is a pickle, which is never read"),
        (edit(auto_map={"AutoConfig": "mine.Config"}), "code of the folder's own"),
        (edit(vocab_size=200), "the data's vocabulary has 257 tokens, the model's 200"),
        (edit(max_position_embeddings=16), "rows have up to 32 tokens, the model takes 16"),
        (edit(id2label={"0": "good", "1": "bad"}), "the model knows the classes good, bad, the data has animal, tool"),
        (edit(model_type="nobody"), "cannot be used for text_classification"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "another tokenizer"),
        (cut, "are missing, such as bert.encoder.layer.1"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no weights"), "cannot be used for"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(
    change: Callable[[Path], object], message: str, passages: Path, model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "changed"
    shutil.copytree(model, folder)
    change(folder)
    with pytest.raises(Refusal, match=message):
        make(passages, base_model=folder)


def test_a_folder_that_fits_is_loaded_and_a_head_may_be_new(passages: Path, model: Path, tmp_path: Path) -> None:
    from transformers import AutoModel

    assert torch.equal(
        make(passages, base_model=model).bert.embeddings.word_embeddings.weight,
        load_file(model / "model.safetensors")["bert.embeddings.word_embeddings.weight"],
    )
    AutoModel.from_pretrained(model).save_pretrained(tmp_path)
    assert make(passages, base_model=tmp_path).config.id2label == {0: "animal", 1: "tool"}


def test_what_is_asked_for_has_to_make_sense(passages: Path, sentences: Path, tiny: Path, model: Path) -> None:
    for data, given, said in (
        (passages, {"base_model": model, "base_config": tiny}, "are both given"),
        (sentences, {"base_config": tiny}, "no causal model"),
        (passages, {"base_model": tiny / "nothing"}, "is no folder"),
    ):
        with pytest.raises(Refusal, match=said):
            make(data, **given)


def test_a_base_model_is_known_by_what_is_in_it(model: Path, tiny: Path, tmp_path: Path) -> None:
    from shared.settings.network import BaseModelSettings
    from shared.training.transformers.start import base_identity

    def identity(folder: Path) -> str | None:
        return base_identity(BaseModelSettings(base_model=folder))["base_model"]

    known = identity(model)
    assert str(known).startswith("bert ")
    moved = shutil.copytree(model, tmp_path / "moved")
    edit(transformers_version="4.0", _name_or_path="elsewhere")(moved)
    assert identity(moved) == known
    trained = load_file(moved / "model.safetensors")
    from safetensors.torch import save_file

    save_file({name: value * 1.001 for name, value in trained.items()}, moved / "model.safetensors", {"format": "pt"})
    assert identity(moved) != known
    other = shutil.copytree(model, tmp_path / "other")
    edit(hidden_dropout_prob=0.5)(other)
    assert identity(other) != known
    assert base_identity(BaseModelSettings()) == {"base_model": None, "base_config": None}
    assert str(base_identity(BaseModelSettings(base_config=tiny))["base_config"]).startswith("bert ")


def test_documents_are_kept_apart_by_models_that_can(sentences: Path, tmp_path: Path) -> None:
    from shared.models.transformers import TokenModel
    from shared.training.transformers.start import card_of_transformer, special_tokens

    data = shutil.copytree(sentences, tmp_path / "data")
    index = json.loads((data / "index.json").read_text())
    index["text"]["documents"] = "separate"
    (data / "index.json").write_text(json.dumps(index))
    net, opened = make(data), Dataset.open(data)
    separator = card_of_transformer(net, opened).settings["separator"]
    assert special_tokens(opened) == (None, separator)
    module = TokenModel(net.eval(), None, int(separator))
    row = opened.split("train").take(np.arange(1))["x"][:, :-1].astype(np.int64)
    row[0, 5] = row[0, 11] = separator
    with torch.no_grad():
        together = module(torch.from_numpy(row))
        for start, stop in ((0, 5), (5, 11), (11, row.shape[1])):
            alone = module(torch.from_numpy(row[:, start:stop]))
            assert torch.allclose(together[:, start:stop], alone, rtol=0, atol=1e-6)
    length = row.shape[1]
    sizes = {"vocab_size": 257, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    wrong = (
        {"model_type": "mistral", "intermediate_size": 64, "num_key_value_heads": 2, "sliding_window": 4},
        {"model_type": "gpt2", "n_positions": length, "bos_token_id": 256, "eos_token_id": 256},
    )
    for number, one in enumerate(wrong):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**sizes, **one}))
        make(sentences, base_config=folder)
        with pytest.raises(Refusal, match="it cannot keep documents apart"):
            make(data, base_config=folder)

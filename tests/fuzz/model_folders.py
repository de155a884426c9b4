"""Folders with models and reports, as evaluate, compare_models and the trainers read them."""

from __future__ import annotations

import inspect
import json
import os
from contextlib import suppress
from pathlib import Path

from tests.fuzz.targets import HalfWrittenError, Target, call_main

_CONFIG = {
    "vocab_size": 257,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


def _write_text_data(folder: Path, *, classes: bool) -> Path:
    from tests.shared.samples import write_language_dataset, write_text_classification_dataset

    if classes:
        return write_text_classification_dataset(folder, rows=(8, 4, 4))
    return write_language_dataset(folder, rows=(8, 4, 4))


# Models that evaluate measures.


def _evaluate(folder: Path) -> None:
    """Take the model for the data as evaluate does, and predict a few rows."""
    import torch

    from components.evaluate.evaluate import refuse_misfit
    from shared.data import Dataset
    from shared.distributed import Refusal
    from shared.models.predictor import load_language_model, load_predictor, read_card

    dataset, place, device = Dataset.open(folder / "data"), folder / "model", torch.device("cpu")
    rows = dataset.split("test").take(range(2))["x"]
    with suppress(Refusal):
        card = read_card(place)
        refuse_misfit(card, dataset.index, place)
        if card.task == "language_modeling":
            load_language_model(place, device).score(rows)
        else:
            load_predictor(place, device)[0](rows)


def _torch_seeds(folder: Path) -> None:
    import torch

    from shared.data import Dataset
    from shared.models.card import ModelCard
    from shared.models.package import from_card, save_model
    from tests.components.training import write_digits

    data = Dataset.open(write_digits(folder / "data"))
    x = data.index.arrays["x"]
    card = ModelCard("resnet", x.shape, x.dtype, data.index.classes, (7.0,), (4.0,))
    torch.manual_seed(0)
    save_model(folder / "model", from_card(card), card)


def _keras_seeds(folder: Path) -> None:
    from shared.data import Dataset
    from shared.models.card import ModelCard
    from shared.models.keras import build_network, save_model
    from tests.components.training import write_digits

    data = Dataset.open(write_digits(folder / "data"))
    x = data.index.arrays["x"]
    card = ModelCard("mlp", x.shape, x.dtype, data.index.classes, (7.0,), (4.0,), framework="keras")
    save_model(folder / "model", build_network(card), card)


def _decoder_seeds(folder: Path) -> None:
    import torch

    from shared.models.card import ModelCard
    from shared.models.package import from_card, save_model

    _write_text_data(folder / "data", classes=False)
    settings = {"vocabulary": 257, "context_length": 16, "layers": 2, "width": 32, "heads": 2}
    of_text = {"task": "language_modeling", "vocabulary": 257, "tokenizer": "bytes"}
    card = ModelCard("decoder", (16,), "int64", settings=settings, **of_text)
    torch.manual_seed(0)
    save_model(folder / "model", from_card(card), card)


def transformer_seeds(folder: Path) -> None:
    """A saved classifier in ``model``, and the data that it fits in ``data``."""
    from transformers import BertConfig, BertForSequenceClassification

    from shared.data import Dataset
    from shared.models.folder import HUGGINGFACE_NAME, INSIDE, begin_model
    from shared.models.transformers import finish_transformer
    from shared.training.transformers.start import card_of_transformer

    data = Dataset.open(_write_text_data(folder / "data", classes=True))
    names = dict(enumerate(data.index.classes))
    net = BertForSequenceClassification(BertConfig(**_CONFIG, id2label=names, pad_token_id=256))
    begin_model(folder / "model")
    net.save_pretrained(folder / "model" / INSIDE / HUGGINGFACE_NAME)
    finish_transformer(folder / "model", card_of_transformer(net, data), None)


# Models of Hugging Face's that a training begins with.


def _base_seeds(folder: Path) -> None:
    """A classifier with its tokenizer, and its data."""
    from transformers import BertConfig, BertModel

    from shared.data.text.tokens import train_subwords

    _write_text_data(folder / "data", classes=True)
    BertModel(BertConfig(**_CONFIG)).save_pretrained(folder / "base")
    for name, text in train_subwords(["a few words of a few texts " * 5], 300).items():
        (folder / "base" / name).write_text(text)


def _read_base(folder: Path) -> None:
    from shared.data import Dataset
    from shared.distributed import Refusal
    from shared.settings.network import BaseModelSettings
    from shared.settings.training import PrecisionSettings
    from shared.training.transformers.identity import base_identity
    from shared.training.transformers.start import make_base_model

    data = Dataset.open(folder / "data")
    for base in (
        BaseModelSettings(base_model=folder / "base", base_config=None),
        BaseModelSettings(base_model=None, base_config=folder / "base"),
    ):
        with suppress(Refusal):
            make_base_model(base, PrecisionSettings(), 0, data)
            base_identity(base)


def _llama_seeds(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    _write_text_data(folder / "data", classes=False)
    LlamaForCausalLM(LlamaConfig(**_CONFIG, num_key_value_heads=1)).save_pretrained(
        folder / "base", max_shard_size="40KB"
    )


def _read_llama(folder: Path) -> None:
    from dataclasses import replace

    import torch

    from shared.data import Dataset
    from shared.distributed import Refusal
    from shared.models.llama import llama_name
    from shared.models.package import empty_decoder
    from shared.settings.network import DecoderSizes
    from shared.training.torch.start import card_of_decoder, open_base

    text = Dataset.open(folder / "data").index.text
    assert text is not None
    with suppress(Refusal):
        decoder = empty_decoder(card_of_decoder(replace(DecoderSizes(), base_model=folder / "base"), text))
        reader = open_base(folder / "base", decoder)
        decoder.to(torch.float32).to_empty(device="cpu")
        for name, parameter in decoder.named_parameters():
            reader.read(llama_name(name), parameter.detach(), (0,) * parameter.ndim)


def _published_seeds(folder: Path) -> None:
    """The same weights twice, and timm's description beside them."""
    import torch
    from safetensors.torch import save_file

    tensors = {"conv1.weight": torch.ones(4, 3, 3, 3), "fc.weight": torch.ones(2, 4), "fc.bias": torch.zeros(2)}
    for name in ("torch", "safetensors"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(
            json.dumps({"pretrained_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}})
        )
    torch.save({"state_dict": tensors}, folder / "torch" / "weights.pth")
    save_file(tensors, folder / "safetensors" / "weights.safetensors")


def _read_published(folder: Path) -> None:
    from shared.distributed import Refusal
    from shared.models.published import read_published

    wanted = {"conv1.weight": (4, 3, 3, 3), "fc.weight": (2, 4), "fc.bias": (2,)}
    for name in ("torch", "safetensors"):
        with suppress(Refusal):
            read_published(folder / name).fitted("resnet18", wanted, None)


# Reports that compare_models compares.


def _report_seeds(folder: Path) -> None:
    for name, accuracy in (("one", 0.5), ("two", 0.75)):
        (folder / name).mkdir()
        numbers = {"accuracy": accuracy, "loss": 1 - accuracy, "rows": 100}
        (folder / name / "metrics.json").write_text(json.dumps(numbers, indent=1))


def _compare_reports(folder: Path) -> None:
    from components.compare_models import compare_models

    work, report = folder.parent / f"{folder.name}.out", folder.parent / f"{folder.name}.out" / "report"
    compared = inspect.unwrap(compare_models.compare_models)  # as a node calls it, and not as a pipeline does
    reports = {f"evaluation_{n}": str(folder / name) for n, name in enumerate(("one", "two"), 1)}
    work.mkdir()
    os.chdir(work)

    def main() -> None:
        try:
            compared(report=str(report), **reports)
        except SystemExit as end:  # with a text, which Python prints, and exits with 1
            raise SystemExit(1 if str(end.code).startswith("error: ") else end.code) from None

    code, said = call_main(main)
    left = sorted(path.name for path in report.glob("*")) if report.is_dir() else []
    if left != ([] if code else ["comparison.csv", "comparison.json", "comparison.png", "index.html"]):
        raise HalfWrittenError(f"exit code {code}, and {left}: {said[-300:]}")


_WEIGHTS_AND_CARD = "model/artifacts/model/*.[js]*"
_ALL_BUT_CODE = "model/artifacts/**/*.[js]*"

MODEL_TARGETS = (
    Target("torch_model", "models", _torch_seeds, _evaluate, _WEIGHTS_AND_CARD),
    Target("decoder_model", "models", _decoder_seeds, _evaluate, _ALL_BUT_CODE),
    Target("transformers_model", "models", transformer_seeds, _evaluate, _ALL_BUT_CODE),
    Target("keras_model", "models", _keras_seeds, _evaluate, _WEIGHTS_AND_CARD),
    Target("base_model", "models", _base_seeds, _read_base, "base/*"),
    Target("llama_base", "models", _llama_seeds, _read_llama, "base/*"),
    Target("published_weights", "models", _published_seeds, _read_published),
    Target("reports", "models", _report_seeds, _compare_reports),
)
"""Readers of models and of what was measured with them."""

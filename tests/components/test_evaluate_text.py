"""evaluate with real ranks on text: exact sums of a language model, classes of passages, and what does not fit."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from shared.data import Dataset
from shared.models import ModelCard, save_model
from shared.models.decoder import DecoderSettings
from shared.models.package import from_card, load_model
from tests.components.test_evaluate import evaluate
from tests.shared.samples import write_language_dataset, write_text_classification_dataset

PICTURES = {"loss_by_position.png", "row_losses.png"}
LANGUAGE_FILES = PICTURES | {
    "index.html",
    "metrics.json",
    "samples.json",
    "worst_rows.json",
    "rows.csv",
    "positions.csv",
}


def language_card(dataset: Dataset, **changes: object) -> ModelCard:
    text = dataset.index.text
    settings = {
        "vocabulary": text.vocabulary,
        "context_length": text.sequence_length,
        "layers": 1,
        "width": 16,
        "heads": 2,
    }
    settings = {name: getattr(DecoderSettings(**settings), name) for name in DecoderSettings.__dataclass_fields__}
    card = ModelCard(
        "decoder", (text.sequence_length,), "int64", (), (), (), "language_modeling",
        vocabulary=text.vocabulary, tokenizer="bytes", settings=settings,
    )  # fmt: skip
    return replace(card, **changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_dataset(tmp_path_factory.mktemp("language"), rows=(64, 8, 45), sequence_length=24)


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder that some steps have made better than chance."""
    folder, dataset = tmp_path_factory.mktemp("model"), Dataset.open(data)
    card = language_card(dataset)
    module = from_card(card)
    x = torch.from_numpy(dataset.split("train").take(np.arange(64))["x"].astype("int64"))
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(module(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    save_model(folder, module, card)
    return folder


@pytest.mark.slow
def test_a_language_model_has_the_same_report_on_any_number_of_ranks(
    tmp_path: Path, data: Path, model: Path, exhaustive: bool
) -> None:
    reports = []
    for nodes, processes in ((1, 1), (1, 3), (2, 2)) if exhaustive else ((1, 1), (1, 3)):
        finished, report = evaluate(tmp_path, data, model, "--batch-size", 4, nodes=nodes, processes=processes)
        assert finished.ok, finished.output
        assert {path.name for path in report.iterdir()} == LANGUAGE_FILES
        reports.append({name: (report / name).read_bytes() for name in LANGUAGE_FILES})
    assert all(report == reports[0] for report in reports)


@pytest.mark.slow
def test_the_numbers_of_a_language_model(tmp_path: Path, data: Path, model: Path) -> None:
    finished, report = evaluate(tmp_path, data, model, "--batch-size", 10, processes=2)
    assert finished.ok, finished.output
    dataset, (module, _) = Dataset.open(data), load_model(model)
    text = dataset.index.text
    x = torch.from_numpy(dataset.split("test").take(np.arange(45))["x"].astype("int64"))
    with torch.inference_mode():
        logits = module(x[:, :-1]).double()
    nats = -logits.log_softmax(-1).gather(-1, x[:, 1:, None])[..., 0]
    loss = nats.mean().item()
    expected = {
        "loss": loss,
        "perplexity": math.exp(loss),
        "bits_per_byte": loss / math.log(2) * text.tokens["test"] / text.size["test"],
        "gzip_bits_per_byte": 8 * text.gzip_size["test"] / text.size["test"],
        "token_accuracy": (logits.argmax(-1) == x[:, 1:]).double().mean().item(),
        "tokens": 45 * 24,
        "rows": 45,
    }
    numbers = json.loads((report / "metrics.json").read_text(encoding="utf-8"))
    assert numbers == pytest.approx(expected, rel=1e-6)
    assert numbers["loss"] < math.log(257) / 2
    line = json.loads((tmp_path / "work-1x2" / "outputs" / "metrics.jsonl").read_text(encoding="utf-8"))
    assert line["metrics"] == numbers
    both = rf"bits_per_byte {numbers['bits_per_byte']:.4f}, gzip_bits_per_byte {numbers['gzip_bits_per_byte']:.4f}"
    assert finished.output.count(both) == 1
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "45 rows of 24 tokens, a vocabulary of 257 tokens" in page
    assert "<dt>gzip, bits per byte</dt>" in page
    assert set(re.findall(r'(?:src|href)="(.{22})', page)) == {"data:image/png;base64,"}
    with (report / "positions.csv").open(newline="") as file:
        by_position = [float(line["nats_per_token"]) for line in csv.DictReader(file)]
    np.testing.assert_allclose(by_position, nats.mean(0), rtol=1e-6)
    with (report / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(line["nats_per_token"]) for line in rows], nats.mean(1), rtol=1e-6)
    hardest = json.loads((report / "worst_rows.json").read_text(encoding="utf-8"))
    assert [one["row"] for one in hardest] == nats.sum(1).argsort(descending=True, stable=True)[:24].tolist()
    assert all(one["text"] == shown_bytes(x[one["row"]]) for one in hardest)
    check_samples(json.loads((report / "samples.json").read_text(encoding="utf-8")), x, nats, logits)
    assert page.count('<article class="sample">') == 4


def shown_bytes(tokens: torch.Tensor) -> str:
    """All of this text is ASCII; what ends a document is written out."""
    return "".join("<|endoftext|>" if token == 256 else chr(token) for token in tokens.tolist())


def check_samples(samples: list[dict[str, Any]], x: torch.Tensor, nats: torch.Tensor, logits: torch.Tensor) -> None:
    assert [one["row"] for one in samples] == [0, 11, 22, 33]
    for one in samples:
        row = one["row"]
        assert one["prompt"] == shown_bytes(x[row, :12])
        assert one["held_out"] == shown_bytes(x[row, 12:25])
        assert one["held_out_perplexity"] == pytest.approx(nats[row, 11:24].mean().exp().item(), rel=1e-5)
        first = logits[row, 11].softmax(0).cumsum(0)  # the draw: the first token whose summed probability is above it
        drawn = int((first <= np.random.default_rng((row,)).random() * first[-1]).sum())
        assert one["continuation"].startswith(shown_bytes(torch.tensor([drawn])))
        assert 1 <= one["perplexity"] < 257


@pytest.mark.slow
def test_passages_are_classified(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification

    from shared.models.folder import HUGGINGFACE_NAME, begin_model
    from shared.models.transformers import finish_transformer

    dataset = Dataset.open(write_text_classification_dataset(tmp_path / "data"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=257, **sizes, max_position_embeddings=40, pad_token_id=256, num_labels=2)
    net = BertForSequenceClassification(config).eval()
    card = ModelCard(
        "BertForSequenceClassification", (32,), "int64", dataset.index.classes, (), (), "text_classification",
        framework="transformers", vocabulary=257, tokenizer="bytes",
    )  # fmt: skip
    net.save_pretrained(begin_model(tmp_path / "model") / HUGGINGFACE_NAME)
    finish_transformer(tmp_path / "model", card, None)
    finished, report = evaluate(tmp_path, tmp_path / "data", tmp_path / "model", "--batch-size", 3, processes=2)
    assert finished.ok, finished.output
    numbers = json.loads((report / "metrics.json").read_text(encoding="utf-8"))
    mistakes = json.loads((report / "worst_rows.json").read_text(encoding="utf-8"))
    taken = dataset.split("test").take(np.arange(16))
    for one in mistakes:
        passage = taken["x"][one["row"], : taken["lengths"][one["row"]]]
        assert one["text"] == passage.astype(np.uint8).tobytes().decode()
    said = []
    for row, length in zip(taken["x"], taken["lengths"], strict=True):  # one by one: without any padding
        with torch.inference_mode():
            said.append(net(torch.from_numpy(row[None, :length].astype("int64"))).logits.argmax().item())
    assert numbers["accuracy"] == pytest.approx(reference.accuracy_score(taken["y"], said))
    assert numbers["macro_f1"] == pytest.approx(reference.f1_score(taken["y"], said, average="macro"))
    assert len(mistakes) == round(16 * (1 - numbers["accuracy"])) > 0
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "16 rows of 32 tokens, 2 classes" in page
    assert all(one["text"] in page for one in mistakes)
    assert "<td>animal</td>" in page
    assert f"accuracy {numbers['accuracy']:.4f} on 16 rows of test" in finished.output


@pytest.mark.slow
def test_a_language_model_that_does_not_fit_is_refused_with_all_reasons(tmp_path: Path, data: Path) -> None:
    dataset = Dataset.open(data)
    sizes = {"vocabulary": 200, "context_length": 16, "layers": 1, "width": 16, "heads": 2,
             "key_value_heads": 2, "feed_forward_width": 64, "tied": 0}  # fmt: skip
    card = language_card(dataset, vocabulary=200, settings=sizes, tokenizer="tokenizer", input_shape=(16,))
    save_model(tmp_path / "model", from_card(card), card)
    finished, report = evaluate(tmp_path, data, tmp_path / "model", processes=2)
    assert finished.codes == (2, 2)
    for reason in (
        "the model reads a tokenizer of its own, the data was prepared with bytes",
        "the model knows 200 tokens, the data has 257",
        "the model takes up to 16 tokens, rows of the data have up to 24",
    ):
        assert finished.output.count(reason) == 1, finished.output
    assert "Traceback" not in finished.output
    assert not report.exists()


def test_a_model_of_another_task_is_refused(tmp_path: Path, model: Path) -> None:
    passages = write_text_classification_dataset(tmp_path / "passages")
    finished, _ = evaluate(tmp_path, passages, model)
    assert finished.codes == (2,)
    wanted = "the model was trained for language_modeling, the data was prepared for text_classification"
    assert wanted in finished.output

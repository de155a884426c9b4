"""The decoder: causal, of the sizes it says, the same from the same seed, saved with its tokenizer and served."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import DecoderModel, DecoderSettings, ModelCard, check_saveable, load_model, save_model
from shared.models.decoder import initialise_decoder
from shared.models.package import from_card
from shared.models.predictor import load_predictor
from shared.settings.command_line import read_settings
from shared.settings.deepspeed import DeepSpeedSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.deepspeed.engine import make_task_model
from shared.training.torch import feed as training_data
from shared.training.torch.feed import BatchFeed, RowReader
from shared.training.torch.start import card_of_decoder, tokenizer_folder
from tests.shared.samples import write_language_dataset

SIZES = DecoderSettings(61, 12, layers=2, width=24, heads=6, key_value_heads=2)


def card(sizes: DecoderSettings = SIZES) -> ModelCard:
    return ModelCard(
        "decoder", (12,), "int64", (), (), (), "language_modeling",
        vocabulary=sizes.vocabulary, tokenizer="bytes", settings=asdict(sizes),
    )  # fmt: skip


def tokens(rows: int = 3, length: int = 12) -> torch.Tensor:
    return torch.randint(0, SIZES.vocabulary, (rows, length))


def parsed(*words: str) -> DeepSpeedSettings:
    ports = ["--data", "d", "--model", "m", "--checkpoints", "c", "--metrics", "x"]
    return read_settings(DeepSpeedSettings, words=[*ports, *words])


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(write_language_dataset(tmp_path_factory.mktemp("text"), rows=(50, 7, 5)))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.booleans(), st.integers(0, 50))
def test_it_has_as_many_parameters_as_it_says(layers: int, size: int, heads: int, tied: bool, hidden: int) -> None:
    sizes = DecoderSettings(31, 8, layers, 2 * size * heads, heads, 1, hidden, tied)
    assert sum(parameter.numel() for parameter in DecoderModel(sizes).parameters()) == sizes.parameters


def test_it_grows_to_billions_without_memory() -> None:
    sizes = DecoderSettings(32_000, 4096, layers=32, width=4096, heads=32, feed_forward_width=11_008)
    assert sizes.parameters == 6_738_415_616  # Llama 2 of 7 billion
    assert all(parameter.is_meta for parameter in DecoderModel(sizes).parameters())
    assert sizes.flops_per_token(4096) == pytest.approx(6 * 6.607e9 + 12 * 32 * 4096 * 4096, rel=1e-3)


def test_no_token_sees_what_comes_after_it() -> None:
    module, x = initialise_decoder(DecoderModel(SIZES), 0).double(), tokens()
    changed = x.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % SIZES.vocabulary
    before, after = module(x), module(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])
    assert torch.allclose(module(x[:, :5]), before[:, :5], atol=1e-12)


def test_first_values_depend_on_seed_and_name_alone() -> None:
    whole = dict(initialise_decoder(DecoderModel(SIZES), 3).named_parameters())
    torch.manual_seed(99)
    parts = [initialise_decoder(DecoderModel(SIZES, stage, 2), 3) for stage in (0, 1)]
    halves = {name: parameter for part in parts for name, parameter in part.named_parameters()}
    assert halves.keys() == whole.keys()
    assert all(torch.equal(halves[name], whole[name]) for name in whole)
    assert not torch.equal(whole["head.weight"], initialise_decoder(DecoderModel(SIZES), 4).head.weight)
    x = tokens()
    assert torch.equal(parts[1](parts[0](x)), initialise_decoder(DecoderModel(SIZES), 3)(x))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"layers": 0, "width": 0}, "layers 0 is not 1 or more; width 0 is not 1 or more"),
        ({"width": 24, "heads": 5}, "width 24 does not divide into 5 heads of an even size"),
        ({"width": 24, "heads": 6, "key_value_heads": 4}, "heads 6 is not a multiple of key_value_heads 4"),
    ],
)
def test_all_that_is_wrong_with_its_sizes_is_said(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        DecoderSettings(61, 12, **sizes)


@pytest.mark.parametrize(("tied", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_a_saved_one_comes_back_the_same(tied: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    described = card(DecoderSettings(61, 12, layers=2, width=24, heads=6, tied=tied))
    module = from_card(described).to(dtype)
    check_saveable(module, described)
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    save_model(tmp_path / "model", module, described, tokenizer=tmp_path / "tokenizer")
    loaded, found = load_model(tmp_path / "model")
    assert found == described
    x = tokens()
    assert torch.equal(loaded(x), module(x))
    assert (tmp_path / "model" / "artifacts" / "model" / "tokenizer" / "tokenizer.json").is_file()
    predict, _ = load_predictor(tmp_path / "model", torch.device("cpu"))
    assert torch.equal(torch.from_numpy(predict(x.numpy().astype("uint16"))).to(dtype), module(x).detach())


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    module = from_card(card())
    other = card(DecoderSettings(61, 12, layers=3, width=24, heads=6))
    with pytest.raises(Refusal, match="decoder cannot be saved"):
        check_saveable(module, other)
    save_model(tmp_path, module, card())
    path = tmp_path / "artifacts" / "model" / "card.json"
    path.write_text(path.read_text().replace('"tied"', '"tide"'))
    with pytest.raises(Refusal, match="are not those of a decoder"):
        load_model(tmp_path)


@pytest.mark.parametrize("held", [True, False])
def test_labels_are_the_tokens_that_follow(held: bool, text: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_data, "HELD_SPLIT_BYTES", 2**20 if held else 0)
    args = parsed("--epochs", "3", "--batch-size", "8")
    feed = BatchFeed(
        RowReader(text.split("train"), torch.device("cpu"), args.loader),
        BatchPlan(8, 1, 1),
        0,
        args.loop,
        args.loader,
        args.seed,
    )
    rows, y = next(feed.epoch(0))
    assert rows.shape == y.shape == (8, 16)
    assert rows.dtype == y.dtype == torch.int64
    assert torch.equal(rows[:, 1:], y[:, :-1])
    assert feed.one_pass().shape == (8, 16)
    assert (feed.steps_per_epoch, feed.steps, feed.epochs) == (6, 18, 3)


def test_a_model_has_to_fit_the_text(text: Dataset) -> None:
    with pytest.raises(Refusal, match="sequences of 16 tokens are longer than the model's context of 15"):
        card_of_decoder(parsed("--context-length", "15").decoder, text.index.text)
    with pytest.raises(Refusal, match="architecture vit does not take text"):
        make_task_model(parsed("--architecture", "vit"), text, cast("World", None), torch.device("cpu"))
    made = card_of_decoder(parsed("--context-length", "64").decoder, text.index.text)
    assert (made.settings["context_length"], made.sequence_length, made.outputs) == (64, 16, 257)
    assert tokenizer_folder(text) is None


PACKED = replace(SIZES, separator=60)


def packed_row(*lengths: int) -> torch.Tensor:
    """A row of documents, each behind its separator."""
    pieces = [torch.cat([torch.tensor([60]), torch.randint(0, 60, (length,))]) for length in lengths]
    return torch.cat(pieces)[None]


def test_a_document_in_a_row_is_predicted_as_if_it_were_alone() -> None:
    module = initialise_decoder(DecoderModel(PACKED), 0).double()
    row = packed_row(4, 2, 3)
    together = module(row)
    for first, last in ((0, 5), (5, 8), (8, 12)):
        torch.testing.assert_close(together[:, first:last], module(row[:, first:last]), rtol=1e-5, atol=1e-6)
    joined = initialise_decoder(DecoderModel(SIZES), 0).double()(row)
    torch.testing.assert_close(together[:, :5], joined[:, :5], rtol=1e-12, atol=1e-12)
    assert (together[:, 5:] - joined[:, 5:]).abs().amax(-1).min() > 1e-3


def test_a_saved_model_keeps_documents_apart(text: Dataset, tmp_path: Path) -> None:
    encoding = text.index.text
    for documents, separator in (("joined", -1), ("separate", 256)):
        made = card_of_decoder(parsed().decoder, replace(encoding, documents=documents))
        assert made.settings["separator"] == separator
    save_model(tmp_path / "model", initialise_decoder(DecoderModel(PACKED), 0), card(PACKED))
    module, _ = load_model(tmp_path / "model")
    row = packed_row(4, 2, 3)
    torch.testing.assert_close(module(row)[:, 5:8], module(row[:, 5:8]), rtol=1e-5, atol=1e-5)

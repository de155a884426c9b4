"""Model folders that were damaged: refused in words, without the memory that they claim. Found by ``make fuzz``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared.distributed import Refusal
from shared.models.card import ModelCard
from shared.models.package import from_card, load_model, save_model


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    card = ModelCard("mlp", (4, 4, 1), "uint8", ("a", "b"), (1.0,), (2.0,))
    save_model(tmp_path, from_card(card), card)
    load_model(tmp_path)
    return tmp_path / "artifacts" / "model"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("input_shape", [2**31, 8, 1], "does not describe the weights beside it"),
        ("input_shape", [], "has sizes below 1, or none"),
        ("input_shape", [-4, 4, 1], "has sizes below 1, or none"),
        ("mean", [10**400], "is damaged: OverflowError"),
        ("std", [float("nan")], "is not a finite number"),
        ("settings", [], "is damaged: AttributeError"),
        ("table", {"columns": [1]}, "a column of the table is no object"),
        ("format", "allranks-model/9", "allranks-model/9"),
        ("classes", ["a"] * 5, "does not describe the weights beside it"),
    ],
)
def test_a_card_that_describes_another_model_is_refused(inside: Path, key: str, value: object, says: str) -> None:
    card = json.loads((inside / "card.json").read_text())
    (inside / "card.json").write_text(json.dumps({**card, key: value}))
    with pytest.raises(Refusal, match=says):
        load_model(inside)


def test_a_card_that_is_too_large_is_refused_before_it_is_read(inside: Path) -> None:
    os.truncate(inside / "card.json", 2**36)
    with pytest.raises(Refusal, match=r"card\.json cannot be read: it has 68,719,476,736 bytes, more than 16,777,216"):
        load_model(inside)


def test_a_card_that_is_not_utf8_is_refused(inside: Path) -> None:
    content = (inside / "card.json").read_bytes()
    (inside / "card.json").write_bytes(content.replace(b"mlp", b"ml\xff"))
    with pytest.raises(Refusal, match=r"card\.json is damaged: UnicodeDecodeError"):
        load_model(inside)


def test_weights_that_are_a_pipe_are_not_waited_for(inside: Path) -> None:
    (inside / "weights.safetensors").unlink()
    os.mkfifo(inside / "weights.safetensors")
    with pytest.raises(Refusal, match="it is not a file"):
        load_model(inside)

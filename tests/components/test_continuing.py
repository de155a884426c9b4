"""Going on from a checkpoint with another end: no step is left out, none is made twice, and nothing ends in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.components.training import bit_equal, train_in_turn, weights
from tests.shared.samples import write_language_dataset

STEPS_PER_EPOCH = 3
SMALL: dict[str, Any] = {"layers": 1, "width": 8, "heads": 2, "batch_size": 8, "log_every": 5}
STEADY: dict[str, Any] = {"schedule": "constant", "warmup_fraction": 0}
"""A learning rate that does not depend on how long the training is."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language_dataset(tmp_path_factory.mktemp("text"), rows=(8 * STEPS_PER_EPOCH + 5, 13, 8))


def history(out: Path) -> list[dict[str, float]]:
    """Numbers of each epoch, without how long it took."""
    document = json.loads((out / "metrics" / "metrics.json").read_text())
    told = ("step", "epoch", "train_loss", "validation_loss")
    return [{name: round(entry[name], 9) for name in told} for entry in document["history"]]


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train_fsdp", pytest.param("train_deepspeed", marks=pytest.mark.exhaustive)])
def test_a_training_cut_by_max_steps_goes_on_as_if_it_had_not_been_cut(script: str, text: Path, tmp_path: Path) -> None:
    options = SMALL | STEADY | {"script": script, "epochs": 4}
    cuts = (2, 3, 7, 8, 8, 4)  # inside an epoch, at its end, over several; then the same once more, and less
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    told = train_in_turn(text, [(whole, {"max_steps": 8}), *((cut, {"max_steps": steps}) for steps in cuts)], **options)
    assert bit_equal(weights(whole), weights(cut))
    assert history(whole) == history(cut)
    assert [entry["step"] for entry in history(cut)] == [3, 6, 8]
    assert "validation loss" not in told[5] + told[6], "nothing was trained, so nothing is measured again"
    assert "nothing is left to train: max_steps 8 asks for 8 steps, and the checkpoint has done 8" in told[5]
    assert "nothing is left to train: max_steps 4 asks for 4 steps, and the checkpoint has done 8" in told[6]

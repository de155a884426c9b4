"""What makes a checkpoint that of another training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.checkpoint.reading import check_same_settings
from shared.data import Dataset
from shared.distributed import Refusal
from shared.settings.command_line import read_settings
from shared.settings.trainer import TrainerSettings
from shared.training.core.position import plan_checkpoints
from tests.shared.samples import write_language_dataset


def test_documents_that_are_kept_apart_make_another_training(tmp_path: Path) -> None:
    data = write_language_dataset(tmp_path / "text")
    words = [word for name in ("data", "model", "checkpoints", "metrics") for word in (f"--{name}", name)]
    settings = read_settings(TrainerSettings, words=words)
    joined = plan_checkpoints(settings, Dataset.open(data)).identity
    index = json.loads((data / "index.json").read_text())
    index["text"]["documents"] = "separate"
    (data / "index.json").write_text(json.dumps(index))
    separate = plan_checkpoints(settings, Dataset.open(data)).identity
    with pytest.raises(Refusal, match="documents was 'separate' and is now 'joined'"):
        check_same_settings({"settings": separate}, joined, "step-00000001")


def test_other_rows_of_the_same_shapes_are_another_training(tmp_path: Path) -> None:
    """Data that was prepared again from other files is as large as before, and the training went on with it."""
    words = [word for name in ("data", "model", "checkpoints", "metrics") for word in (f"--{name}", name)]
    settings = read_settings(TrainerSettings, words=words)
    first, again, other = (
        plan_checkpoints(settings, Dataset.open(write_language_dataset(tmp_path / name, seed=seed))).identity
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first == again
    with pytest.raises(Refusal, match=r"another training: train data was 'sha256 \w+' and is now 'sha256 \w+'\. Use"):
        check_same_settings({"settings": first}, other, "step-00000001")
    unknown = {name: value for name, value in first.items() if name != "train data"}
    with pytest.raises(Refusal, match="another training: train data was None"):
        check_same_settings({"settings": unknown}, first, "step-00000001")

"""What a training run saves and reports, step by step, without a framework."""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.checkpoint.saving import CheckpointEngine
from shared.settings.command_line import read_settings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import ScheduleSettings
from shared.training.core.meter import LossMeter
from shared.training.core.position import TrainingPosition
from shared.training.core.run import TrainingRun
from shared.training.core.schedule import LearningSchedule

WORLD: Any = SimpleNamespace(
    world_size=1, local_world_size=1, is_main=True, launch=SimpleNamespace(alone=True), note=print
)


class Meter(LossMeter):
    """Sees no loss."""

    def _agree(self, wish: float) -> tuple[float, float]:
        return 0.0, wish


class Saver:
    """Notes what it is to save."""

    def __init__(self, own_step: int | None) -> None:
        self.own_step, self.saved, self.last_saved = own_step, list[int](), own_step
        self.writer = CheckpointEngine(None, Path("checkpoints"), timedelta(seconds=1))

    def save(self, position: TrainingPosition) -> None:
        self.saved.append(position.step)

    def finish(self) -> None:
        """It has."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_from(at: TrainingPosition, saver: Any) -> TrainingRun:
    """A run of 2 epochs of 4 steps, from a position on."""
    words = [word for name in ("data", "model", "checkpoints", "metrics") for word in (f"--{name}", name)]
    settings = read_settings(TrainerSettings, words=[*words, "--epochs", "2"])
    schedule = LearningSchedule.for_steps(8, 0.1, ScheduleSettings())
    return TrainingRun(settings, WORLD, saver, at, schedule, Meter(WORLD, counts_waits=False))


def test_a_validation_number_that_is_not_finite_is_left_out_of_what_is_kept_as_json() -> None:
    at = TrainingPosition(1, 4, 8)
    with run_from(at, Saver(None)) as run:
        run.end_epoch({"loss": 710.0, "perplexity": math.inf, "auc": math.nan})
        run.finish()
    json.dumps(at.history, allow_nan=False)  # as a checkpoint's state is written
    assert at.history[-1]["validation_loss"] == 710.0
    assert not {"validation_perplexity", "validation_auc"} & at.history[-1].keys()
    assert "NaN" not in Path("metrics/metrics.json").read_text()

"""Inputs without an effect are named once, and only those."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from shared.data import Dataset
from shared.distributed import init
from shared.settings.command_line import read_settings
from shared.settings.fields import input_port
from shared.settings.network import DecoderSizes, NetworkSettings
from shared.settings.running import LoaderSettings
from shared.settings.sharding import ParallelSettings, ShardingSettings
from shared.settings.trainer import TrainerSettings
from shared.training.core import open_data
from shared.training.core.open_data import node_memory, note_unused, slow_reading
from tests.components.training import write_digits


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerSettings):
    """Every input that may be without effect."""

    network: NetworkSettings
    decoder: DecoderSizes
    module: str | None = input_port("A module.", default=None)
    sharding: ShardingSettings
    parallel: ParallelSettings


def settings(given: dict[str, str | None]) -> Settings:
    """The Settings with what is given besides the ports that are needed."""
    needed = {"data": "d", "model": "m", "checkpoints": "c", "metrics": "x"}
    words = [(f"--{name.replace('_', '-')}", value) for name, value in (needed | given).items() if value is not None]
    return read_settings(Settings, words=[part for pair in words for part in pair])


def test_what_has_no_effect_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Dataset.open(write_digits(tmp_path, rows=40))
    with init("torch") as world:
        for given in (
            {"architecture": "mlp", "model_code": "code"},
            {"architecture": "mine.py:build", "model_code": "code", "tie_embeddings": "true", "context_length": "8"},
            {"architecture": "resnet", "module": "mine.py:Net", "model_code": "code"},
            {"architecture": "vit", "tie_embeddings": "false", "context_length": None, "module": None},
            {"sharding": "fsdp"},
            {"sync_batch_norm": "true"},
        ):
            note_unused(settings(given), data, world)
    assert capsys.readouterr().out.splitlines() == [
        "note: model_code has no effect here: the model is one of this library",
        "note: context_length has no effect here: the data is no text",
        "note: tie_embeddings has no effect here: the data is no text",
        "note: architecture has no effect here: the module mine.py:Net is trained in its place",
        "note: sharding has no effect here: one rank has nothing to divide",
        "note: sync_batch_norm has no effect here: one rank has all rows of a batch",
    ]


def test_rows_that_travel_one_by_one_are_named_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Dataset.open(write_digits(tmp_path, rows=400))
    rows = 280 * (64 + 8)
    assert node_memory() > 2**30
    assert slow_reading(data, LoaderSettings(), rows) == ""
    assert slow_reading(data, LoaderSettings(), rows - 1) == "", "the disk of the node has them"
    monkeypatch.setattr(open_data, "is_local", lambda folder: folder != tmp_path)
    assert slow_reading(data, LoaderSettings(), rows) == ""
    assert slow_reading(data, LoaderSettings(read="streaming"), rows - 1) == ""
    assert "With read streaming whole files travel" in slow_reading(data, LoaderSettings(read="random"), rows - 1)

"""What the long ``make fuzz`` has found in folders of models, reports, runs and outputs: each is a message, or passed over."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from allranks.local.event_files import read_event_file
from allranks.local.folders import RunsHome
from allranks.local.metrics_file import MetricsFollower, read_end
from allranks.local.tracking.database import open_database
from allranks.local.tracking.reading import TrackingReader
from components.compare_models.compare_models import read
from shared.checkpoint.files import Manifest, find_damage
from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import DamageError
from shared.distributed import Refusal
from shared.models.card import ModelCard
from shared.models.llama import read_llama_config
from shared.models.package import empty_decoder
from shared.models.weight_files import WeightReader

RUN = "a" * 32


@pytest.fixture
def home(tmp_path: Path) -> RunsHome:
    """A database with one run, one metric and one tag."""
    database = open_database(tmp_path / "tracking.db")
    values = (1, RUN, "0", "train", "me", "FINISHED", 1000, 5000, "active", 1)
    database.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    database.execute("INSERT INTO metrics VALUES (1, 1, 'loss', 1, 1500, 0.5)")
    database.execute("INSERT INTO tags VALUES ('run', ?, 'colour', 'red')", [RUN])
    database.close()
    return RunsHome(tmp_path)


def change(home: RunsHome, statement: str) -> None:
    database = sqlite3.connect(home.tracking)
    database.execute(statement)
    database.commit()
    database.close()


def test_a_database_whose_schema_is_no_text_is_no_traceback(home: RunsHome) -> None:
    """Python decodes what SQLite says of it, which quotes the schema."""
    damaged = home.tracking.read_bytes().replace(b"INDEX runs_of_experiment", b"INDEX runs\xce\xfff_experiment")
    home.tracking.write_bytes(damaged)
    with TrackingReader(home) as reader:
        assert reader.latest(RUN) == {}
    with pytest.raises(sqlite3.DatabaseError):
        open_database(home.tracking)


@pytest.mark.parametrize(
    ("statement", "is_there"),
    [
        ("UPDATE metrics SET time = 'soon'", True),
        ("UPDATE metrics SET value = x'00'", True),
        ("UPDATE tags SET value = x'00'", True),
        ("UPDATE runs SET started = 'soon'", False),
        ("UPDATE experiments SET location = x'00'", False),
    ],
)
def test_a_value_that_is_none_of_its_column_is_passed_over(home: RunsHome, statement: str, is_there: bool) -> None:
    change(home, statement)
    with TrackingReader(home) as reader:
        run = reader.run(RUN)
        assert (run is not None) is is_there
        if run is not None:
            assert not (run.metrics and run.tags), "the changed one is passed over, and the other is there"
            assert run.metrics or run.tags


def test_an_experiment_at_no_place_has_no_folder(home: RunsHome) -> None:
    change(home, "UPDATE experiments SET location = 'http://['")
    with TrackingReader(home) as reader:
        run = reader.run(RUN)
    assert run is not None
    assert run.artifacts is None


def test_a_view_in_the_place_of_a_table_is_not_read(home: RunsHome) -> None:
    change(home, "DROP TABLE tags")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'run', i, i, i FROM n"
    change(home, f"CREATE VIEW tags (kind, owner, key, value) AS {endless}")
    with TrackingReader(home) as reader:
        assert reader.pairs("tags", RUN) == {}


def test_pipes_in_a_folder_of_runs_are_not_waited_for(tmp_path: Path) -> None:
    for name in ("tracking.db", "metrics.jsonl", "events.out.tfevents.1"):
        os.mkfifo(tmp_path / name)
    with TrackingReader(RunsHome(tmp_path)) as reader:
        assert reader.run(RUN) is None
    assert MetricsFollower(tmp_path / "metrics.jsonl").read_new() == ([], False)
    assert read_end(tmp_path / "metrics.jsonl") == b""
    assert read_event_file(tmp_path / "events.out.tfevents.1") == ([], 0)


@pytest.mark.parametrize("text", ["[" * 100_000, "\xff", None])
def test_a_report_that_cannot_be_read_is_one_message(tmp_path: Path, text: str | None) -> None:
    if text is None:
        os.mkfifo(tmp_path / "metrics.json")
    else:
        (tmp_path / "metrics.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="connect a report of Evaluate"):
        read([tmp_path], "-")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("layers", 2**31, "layers 2147483648 is no whole number up to 10,000"),
        ("heads", False, "heads False is no whole number"),
        ("width", 1e308, "width 1e.308 is no whole number"),
        ("separator", 0.5, "separator 0.5 is no token"),
    ],
)
def test_sizes_that_no_decoder_has_are_refused_before_it_is_built(name: str, value: object, says: str) -> None:
    settings = {"vocabulary": 257, "context_length": 16, "layers": 2, "width": 32, "heads": 2, name: value}
    card = ModelCard("decoder", (16,), "int64", task="language_modeling", vocabulary=257, settings=settings)
    with pytest.raises(Refusal, match=says):
        empty_decoder(card)


@pytest.mark.parametrize(
    "content", [b'{"model_type": "llama\xe5"}', b'{"vocab_size": "x", "model_type": "llama"}', b"[" * 100_000]
)
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(Refusal, match="cannot be read as the configuration of a model"):
        read_llama_config(tmp_path)


def test_a_pipe_among_the_files_of_the_weights_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "a.safetensors"}}')
    with pytest.raises(Refusal, match="it is not a file"):
        WeightReader(tmp_path)


def test_a_manifest_that_names_no_state_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "step-00000004"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(Manifest(4, {}).encode())
    assert "names no file with the state" in (find_damage(folder) or "")
    with pytest.raises(DamageError):
        CheckpointReader(folder)


def test_a_card_with_another_number_of_means_than_of_deviations_is_refused() -> None:
    card = ModelCard("mlp", (8, 8, 1), "uint8", ("a", "b"), (), (1.0,))
    with pytest.raises(Refusal, match="there are 0 means and 1 standard deviations"):
        ModelCard.from_json(card.to_json(), "card.json")

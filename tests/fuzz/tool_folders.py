"""Folders that the tool reads: all of a runs folder, its database, event files for TensorBoard, outputs of a drill."""

from __future__ import annotations

import json
import os
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fuzz.targets import HalfWrittenError, Target, checkpoint_seeds, read_checkpoint, run_allranks

# A whole runs folder, with what steps log.

_PIPELINE = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
jobs:
  train:
    type: command
    command: >-
      mkdir -p outputs ${{outputs.model}}; cp ${{inputs.events}}/* outputs; echo hello;
      echo '{"step": 1, "total": 2, "metrics": {"loss": 0.5}}' >> outputs/metrics.jsonl; echo 1 > ${{outputs.model}}/x
    environment: azureml:any@latest
    inputs: {events: {type: uri_folder, path: ./events}}
    outputs: {model: {type: uri_folder}}
  fail:
    type: command
    command: echo ${{inputs.model}}; exit 3
    environment: azureml:any@latest
    inputs: {model: "${{parent.jobs.train.outputs.model}}"}
"""


def _home_seeds(folder: Path) -> None:
    _write_events(folder / "events")
    (folder / "p.yaml").write_text(_PIPELINE)
    os.chdir(folder)
    for _ in range(2):
        run_allranks("run", "p.yaml")
    shutil.rmtree(folder / "events")
    (folder / "p.yaml").unlink()


def _read_home(folder: Path) -> None:
    os.chdir(folder)
    for command in (
        ("runs", "list"),
        ("runs", "show", "latest", "--json"),
        ("runs", "logs", "latest"),
        ("runs", "logs", "latest", "train"),
        ("runs", "compare", *_two_runs(folder)),
        ("run", "--resume", "latest", "--dry-run"),
    ):
        run_allranks(*command)
    _read_views(folder / ".allranks")


def _two_runs(folder: Path) -> list[str]:
    runs = folder / ".allranks" / "runs"
    return sorted(path.name for path in runs.iterdir())[:2] if runs.is_dir() else []


def _read_views(home: Path) -> None:
    """What the page of a run and a notebook show of its steps."""
    from allranks.local.folders import RunsHome
    from allranks.local.logged import read_running_step, read_step_curves
    from allranks.local.tracking.reading import TrackingReader, child_depths

    runs = RunsHome(home)
    with TrackingReader(runs) as reader:
        for run in runs.all_runs():
            for name in ("train", "fail"):
                json.dumps(read_running_step(run, name, reader), allow_nan=False)
                read_step_curves(run, name, reader)
        for run_id in reader.run_ids():
            reader.run(run_id)
            child_depths(reader.made_by(run_id))
        reader.new_metrics(reader.run_ids(), reader.sequence())


# MLflow's database.

_LOGGED = {
    "runs": [
        [1, "a" * 32, "0", "train", "me", "FINISHED", 1000, 5000, "active", 1],
        [2, "b" * 32, "0", "own", "me", "RUNNING", 2000, None, "active", 0],
    ],
    "tags": [
        ["run", "b" * 32, "allranks.job", "a" * 32],
        ["run", "b" * 32, "mlflow.parentRunId", "a" * 32],
        ["run", "a" * 32, "colour", "red"],
    ],
    "params": [["run", "a" * 32, "lr", "0.1"], ["run", "b" * 32, "depth", "3"]],
    "metrics": [[1, 1, "loss", 1, 1500, 0.5], [2, 1, "loss", 2, 1600, 0.25]],
    "latest": [[1, "loss", 2, 2, 1600, 0.25], [2, "loss", 1, 1, 1600, None]],
    "datasets": [[1, "x y", '{"dataset": {"name": "x", "digest": "y"}}']],
}
"""Rows of each table of the database."""


def _tracking_seeds(folder: Path) -> None:
    """A runs folder with one run, the rows of the database as JSON, and the file that they make."""
    _home_seeds(folder)
    for state in (folder / ".allranks").glob("runs/*/steps/train/step.json"):
        state.write_text(json.dumps(json.loads(state.read_text()) | {"mlflow_run_id": "a" * 32}))
    (folder / "rows.json").write_text(json.dumps(_LOGGED, indent=1))
    _write_database(folder)


def _write_database(folder: Path) -> None:
    """Write the rows into the tables of the tool, whatever they hold: SQLite keeps any value in a column."""
    import sqlite3

    from allranks.local.tracking.database import open_database

    path = folder / ".allranks" / "tracking.db"
    for left in path.parent.glob("tracking.db*"):
        left.unlink()
    database = open_database(path)
    source = folder / "rows.json"
    tables = json.loads(source.read_bytes()) if source.is_file() and source.stat().st_size else None
    for table, rows in tables.items() if isinstance(tables, dict) else ():
        for row in rows if isinstance(rows, list) else ():
            values = [_stored_value(value) for value in row] if isinstance(row, list) else [_stored_value(row)]
            with suppress(sqlite3.Error, UnicodeEncodeError):
                database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(values))})", values)  # noqa: S608  # ours
    database.execute("PRAGMA journal_mode = DELETE")  # so that all is in one file, which mutants are made of
    database.close()


def _stored_value(value: Any) -> Any:
    """A number that is too large as a text, objects as what they are in bytes."""
    if isinstance(value, dict | list):
        return json.dumps(value).encode()
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def _read_tracking_rows(folder: Path) -> None:
    with suppress(OSError, ValueError, RecursionError):  # the rows are what is fuzzed, and not their JSON
        _write_database(folder)
    _read_tracking(folder)


def _read_tracking(folder: Path) -> None:
    """Show the run, and look at it as its page and the export to MLflow do."""
    from allranks.local.folders import RunsHome
    from allranks.local.tracking.export import _document
    from allranks.local.tracking.reading import TrackingReader

    os.chdir(folder)
    run_allranks("runs", "show", "latest", "--json")
    run_allranks("runs", "compare", *_two_runs(folder))
    _read_views(folder / ".allranks")
    with TrackingReader(RunsHome(folder / ".allranks")) as reader:
        for run_id in reader.run_ids():
            if (run := reader.run(run_id)) is not None:
                json.dumps(_document(run))


# Event files for TensorBoard.


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _event(tag: str, step: int, value: float) -> bytes:
    """An Event with one simple value, or for an odd step with a tensor of one float."""
    tensor = _field(2, b"") + b"\x08\x01" + _field(4, struct.pack("<f", value))
    number = _field(8, tensor) if step % 2 else b"\x15" + struct.pack("<f", value)
    return (
        b"\x09"
        + struct.pack("<d", 1e9)
        + b"\x10"
        + _varint(step)
        + _field(5, _field(1, _field(1, tag.encode()) + number))
    )


def _sealed(events: list[bytes]) -> bytes:
    from allranks.local.event_files import _masked_crc

    def checked(data: bytes) -> bytes:
        return data + struct.pack("<I", _masked_crc(data))

    return b"".join(checked(struct.pack("<Q", len(event))) + checked(event) for event in events)


def _write_events(folder: Path) -> None:
    folder.mkdir()
    events = [_event("loss", step, 1 / (step + 1)) for step in range(4)]
    (folder / "events.out.tfevents.1.host").write_bytes(_sealed(events))


def _event_seeds(folder: Path) -> None:
    """A file of events as it is, and events whose check sums are made after they were mutated."""
    _write_events(folder / "logs")
    for step in range(3):
        (folder / f"{step}.event").write_bytes(_event("accuracy", step, step / 4))


def _read_events(folder: Path) -> None:
    from allranks.local.event_folders import EventCurves

    events = [path.read_bytes() for path in sorted(folder.glob("*.event")) if path.is_file() and path.stat().st_size]
    (folder / "logs" / "validation").mkdir(parents=True, exist_ok=True)
    (folder / "logs" / "validation" / "events.out.tfevents.2.host").write_bytes(_sealed(events))
    curves = EventCurves([folder / "logs"])
    for _ in range(2):
        if not all(isinstance(point.value, float) for points in curves.look().values() for point in points):
            raise AssertionError("a value of an event is no number")
    curves.has_files()


# Outputs of two executions, which a drill compares: archives, tensors, texts.


def _output_seeds(folder: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    for number, name in enumerate(("one", "other")):
        place = folder / name
        place.mkdir()
        array = np.arange(12, dtype=np.float32).reshape(3, 4) + number
        np.save(place / "a.npy", array)
        np.savez(place / "a.npz", x=array)
        save_file({"w": array, "v": array[0]}, place / "a.safetensors")
        (place / "a.json").write_text(json.dumps({"loss": [1, 2, {"x": number}], "time": number}))
        (place / "a.txt").write_text(f"a\nb {number}\n")


def _read_outputs(folder: Path) -> None:
    from allranks.drill.comparing import compare_outputs

    compare_outputs({"out": folder / "one"}, {"out": folder / "other"})
    for path in sorted((folder / "one").iterdir()):  # a file that is the same twice but for one number
        if path.is_file() and path.stat().st_size and path.suffix != ".txt":
            changed = bytearray(path.read_bytes()[:-1] + b"\x01")
            (folder / "again").mkdir(exist_ok=True)
            (folder / "again" / path.name).write_bytes(changed)
    if (folder / "again").is_dir():
        compare_outputs({"out": folder / "one"}, {"out": folder / "again"})


# Manifests of checkpoints whose own sha256 was made after the fact.


def _read_resealed(folder: Path) -> None:
    from allranks.local.checkpoints import newest_checkpoint
    from shared.checkpoint.files import _digest

    newest_checkpoint([folder])
    for path in folder.glob("*/manifest.json"):
        with suppress(OSError, ValueError, RecursionError):
            content = json.loads(path.read_bytes()) if path.is_file() and path.stat().st_size else None
            if isinstance(content, dict) and content.pop("sha256", ""):
                path.write_text(json.dumps(content | {"sha256": _digest(content)}))
    with suppress(HalfWrittenError):  # whoever can seal it can name what they like
        read_checkpoint(folder)
    newest_checkpoint([folder])


TOOL_TARGETS = (
    Target("home", "folders", _home_seeds, _read_home, ".allranks/**/*"),
    Target("tracking_file", "folders", _tracking_seeds, _read_tracking, ".allranks/tracking.db"),
    Target("tracking_rows", "folders", _tracking_seeds, _read_tracking_rows, "rows.json"),
    Target("events", "folders", _event_seeds, _read_events),
    Target("outputs", "folders", _output_seeds, _read_outputs),
    Target("manifests", "folders", checkpoint_seeds, _read_resealed, "*/manifest.json"),
)
"""Readers of the tool, and of what it looks at besides."""

"""Every trainer on two ranks whose checkpoints have too little room: it trains on, says so, and keeps what it can."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from shared.checkpoint.reading import newest_valid_checkpoint
from tests.components.launched import Options, ask_to_stop, launched, run_launched
from tests.components.test_blob_mount import arranged, weights
from tests.components.training import lines, write_digits
from tests.helpers import RankResult, finish
from tests.small_disk import can_mount_disk, small_disk

pytestmark = pytest.mark.skipif(not can_mount_disk(), reason="the small disk has to be mounted, which takes root")

TRAINERS = [
    "train_ddp",
    *(
        pytest.param(f"train_{name}", marks=pytest.mark.exhaustive)
        for name in (
            *("torchrun", "fsdp", "deepspeed", "lightning", "transformers", "horovod", "horovod_keras"),
            *("tf_multiworker", "tf_parameter_server"),
        )
    ),
]
PAGE = 4096
CHECKPOINT = 1_085_440
"""Bytes of one of train_ddp here."""


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digits"), rows=200)


def size_of(checkpoint: Path) -> int:
    """Bytes that a checkpoint takes on a disk."""
    files = [path.stat().st_size for path in checkpoint.iterdir()]
    return sum(-(-size // PAGE) * PAGE for size in files)


def steps_in(checkpoints: Path) -> list[int]:
    return sorted(int(path.parent.name[5:]) for path in checkpoints.glob("step-*/manifest.json"))


def said(results: list[RankResult]) -> str:
    return "".join(result.stdout + result.stderr for result in results)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_with_too_little_room_it_ends_with_the_same_model(trainer: str, digits: Path, tmp_path: Path) -> None:
    data, options = arranged(trainer, digits, tmp_path)
    run_launched(trainer, data, tmp_path / "roomy", options)
    kept = tmp_path / "roomy" / "checkpoints"
    newest = newest_valid_checkpoint(kept)
    assert newest is not None
    size, whole, saved = size_of(newest), weights(tmp_path / "roomy"), steps_in(kept)
    for room, expected in ((2.5, saved), (1.5, saved[:0]), (0.5, saved[:0])):
        out = tmp_path / f"room {room}"
        with small_disk(tmp_path / f"disk {room}", int(room * size) + 2 * PAGE) as disk:
            results = run_launched(trainer, data, out, {**options, "checkpoints": disk / "c", "keep_checkpoints": 2})
            found, text = steps_in(disk / "c"), said(results)
            left = [path for path in (disk / "c").glob("step-*") if not (path / "manifest.json").is_file()]
            newest = newest_valid_checkpoint(disk / "c")
        print(trainer, room, size, found, re.findall("(?:warning|note): .*", text), sep="\n")
        if trainer != "train_tf_parameter_server":
            assert weights(out) == whole
        numbers = json.loads((out / "metrics" / "metrics.json").read_text())
        assert not left
        if room > 2:
            assert found == expected
            assert newest is not None
            assert newest.name == f"step-{saved[-1]:08d}"
            assert "is full: the oldest checkpoint was removed to save step" in text
            assert "failed_saves" not in numbers
            continue
        assert len(found) == int(room)
        assert (newest is None) == (room < 1)
        assert "training goes on" in text
        assert "did not take it (No space left on device)" in text
        assert numbers["failed_saves"] >= 1
        assert numbers.get("last_saved_step") == (found[-1] if found else None)
        assert any("failed_saves" in line["metrics"] for line in lines(out))


@pytest.fixture
def long(digits: Path, tmp_path: Path) -> tuple[Path, Options]:
    """A training that would go on for minutes."""
    data, options = arranged("train_ddp", digits, tmp_path)
    return data, {**options, "epochs": 10_000}


@pytest.mark.parametrize(("room", "code"), [(1.5, 143), (0.5, 1)])
def test_stopped_without_room_it_says_what_is_saved(
    room: float, code: int, long: tuple[Path, Options], tmp_path: Path
) -> None:
    data, options = long
    with small_disk(tmp_path / "disk", int(room * CHECKPOINT) + 2 * PAGE) as disk:
        with launched("train_ddp", data, tmp_path / "out", {**options, "checkpoints": disk / "c"}) as ranks:
            until = time.monotonic() + 60
            while ranks[0].stderr.count("training goes on") < 3:
                assert time.monotonic() < until, ranks[0].stderr
                time.sleep(0.01)
            ask_to_stop(ranks)
            results = finish(ranks)
        kept = steps_in(disk / "c")
    assert [result.returncode for result in results] == [code, code]
    text = said(results)
    assert "Traceback" not in text
    why = rf"{re.escape(str(disk / 'c'))} did not take it \(No space left on device\)"
    if kept:
        last = f"the last checkpoint is of step {kept[-1]}"
        assert re.search(rf"stopped by SIGTERM after step \d+, which is not saved: {why}; {last}", text)
    else:
        assert re.search(rf"error: .* stopped by SIGTERM after step \d+, and nothing of it is saved: {why}", text)


def test_a_model_that_finds_no_room_fails_the_training(digits: Path, tmp_path: Path) -> None:
    data, options = arranged("train_ddp", digits, tmp_path)
    with small_disk(tmp_path / "disk", 20 * PAGE) as disk:
        further = {"epochs": 1, "model": disk / "model", "checkpoints": tmp_path / "c"}
        with launched("train_ddp", data, tmp_path / "out", {**options, **further}) as ranks:
            results = finish(ranks)
    assert [result.returncode for result in results] == [1, 1]
    assert "No space left on device" in said(results)
    assert steps_in(tmp_path / "c")[-1] == 8


def test_metrics_and_logs_on_a_full_disk_end_nothing(digits: Path, tmp_path: Path) -> None:
    data, options = arranged("train_ddp", digits, tmp_path)
    with small_disk(tmp_path / "disk", 30 * PAGE) as disk:
        (disk / "outputs").mkdir()
        (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free))
        further = {name: tmp_path / "out" / name for name in ("model", "checkpoints")}
        with launched("train_ddp", data, disk, {**options, **further}) as ranks:
            results = finish(ranks)
    assert [result.returncode for result in results] == [0, 0]
    text = said(results)
    assert text.count("could not be written") == 2
    assert "metrics.json could not be written" in text
    assert "the metrics of step" in text

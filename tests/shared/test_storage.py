"""What writes in a mounted blob store neither renames nor appends, and tries again what failed for a moment."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shared.checkpoint import reading, saving
from shared.copies import copy_folder
from shared.data import Array, Dataset, Index, Statistics
from shared.data.write import write_index, write_shard
from shared.models.folder import begin_model, write_weights
from shared.storage import (
    FrontToBack,
    RandomReads,
    append_text,
    make_folder,
    read_bytes,
    remove_folder,
    retry_transient,
    write_file,
    write_text,
)
from shared.tensors import write_safetensors
from tests.blob_mount import BlobFaults, blob_mount, can_mount
from tests.helpers import ROOT

WORST = BlobFaults(rename="refuse", append=False, lag=0.3, errors=0.05, close=0.005)
mounted = pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with blob_mount(tmp_path_factory.mktemp("blob"), WORST) as place:
        yield place


@mounted
def test_files_tensors_and_models_arrive_whole(mount: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    content = os.urandom(5_000_000)
    write_file(mount / "file", lambda: (content[:1_000_001], content[1_000_001:]))
    assert read_bytes(mount / "file") == content
    for number in range(30):
        append_text(mount / "lines", f"{number}\n")
    assert read_bytes(mount / "lines").decode().split() == [str(number) for number in range(30)]
    arrays = {"a": np.arange(300_000.0), "b": np.arange(7, dtype="uint8"), "c": np.float32(3) * np.ones(())}
    write_safetensors(mount / "tensors", arrays)
    write_weights(begin_model(mount / "model"), arrays)
    behind = mount.parent / "behind"
    for path in (behind / "tensors", behind / "model" / "artifacts" / "model" / "weights.safetensors"):
        loaded = load_file(path)
        assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
    for number in range(40):
        (tmp_path / f"{number % 4}").mkdir(exist_ok=True)
        (tmp_path / f"{number % 4}" / f"{number}.txt").write_text(str(number))
    copy_folder(tmp_path, mount / "copied", lambda _folder, names: {name for name in names if name == "7.txt"})
    assert len(list((behind / "copied").rglob("*.txt"))) == 39


@mounted
@pytest.mark.parametrize("promised", [40_000, 50_000])
def test_a_prepared_dataset_is_whole_also_if_rows_are_left_out(promised: int, mount: Path) -> None:
    folder = mount / f"data{promised}"
    arrays = {"x": Array((4,), "float32"), "y": Array((), "int64")}
    rows = np.arange(160_000, dtype="float32").reshape(-1, 4)
    chunks = [{"x": rows[start : start + 7000], "y": np.zeros(7000, "int64")} for start in range(0, 35_000, 7000)]
    chunks.append({"x": rows[35_000:], "y": np.zeros(5_000, "int64")})
    shards = {
        split: (shard,)
        for split in ("train", "validation", "test")
        if (shard := write_shard(folder, split, 0, rows=promised, arrays=arrays, chunks=chunks))
    }
    statistics = Statistics((0.0,) * 4, (1.0,) * 4)
    write_index(folder, Index("classification", arrays, ("a", "b"), statistics, shards))
    behind = mount.parent / "behind" / folder.name
    for file in shards["train"][0].files.values():
        assert hashlib.sha256((behind / file.path).read_bytes()).hexdigest() == file.sha256
    data = Dataset.open(behind)
    assert np.array_equal(data.split("train").take(np.arange(40_000))["x"], rows)


@mounted
@pytest.mark.parametrize("rename", ["refuse", "copy"])
def test_checkpoints_are_written_and_found_though_names_are_seen_late(rename: str, tmp_path: Path) -> None:
    faults = BlobFaults(rename=rename, append=False, lag=1000, errors=0.02)  # type: ignore[arg-type]
    with blob_mount(tmp_path, faults) as mount:
        for step in (1, 2, 3):
            saving.save_checkpoint(mount / "c", step, {"w": np.full(300_000, float(step))}, {"step": step})
        newest = reading.newest_valid_checkpoint(mount / "c")
        assert newest is not None  # by the hint alone
        tensors, state = reading.load_checkpoint(newest)
        assert state == {"step": 3}
        assert np.asarray(tensors["w"]).min() == 3
    assert json.loads((tmp_path / "behind" / "c" / "latest.json").read_text())["checkpoint"] == "step-00000003"


@mounted
def test_a_folder_goes_with_what_its_listing_does_not_show_yet(mount: Path) -> None:
    for name in ("of the folders/inside", "of the folders/inside/other"):
        make_folder(mount / name)
    for number in range(30):
        write_text(mount / "of the folders" / "inside" / f"{number}", "new")
    remove_folder(mount / "of the folders")
    assert not (mount.parent / "behind" / "of the folders").exists()
    remove_folder(mount / "of the folders")


def test_what_does_not_pass_is_said_at_once() -> None:
    tries = 0

    def full() -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        retry_transient(full)
    assert tries == 1


@mounted
def test_closing_what_was_read_says_nothing(tmp_path: Path) -> None:
    """A mount may answer even that with an error, which once made a sound checkpoint one that is passed over."""
    with blob_mount(tmp_path / "blob", BlobFaults(errors=1.0)) as place:
        retry_transient(lambda: (place / "file").write_bytes(b"abc"))
        for _ in range(4):  # each second closing fails
            reads = RandomReads(place / "file")
            assert reads.read(0, 3) == b"abc"
            reads.close()


def test_a_file_that_cannot_be_opened_leaves_nothing_behind_that_complains(tmp_path: Path) -> None:
    """Python 3.13 shows what goes wrong when an object ends; older ones do in their development mode."""
    code = "import sys, pathlib, shared.storage; shared.storage.open_file(pathlib.Path(sys.argv[1]))"
    words = [sys.executable, "-X", "dev", "-W", "ignore", "-c", code, str(tmp_path / "none")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "FileNotFoundError" in done.stderr
    assert "Exception ignored" not in done.stderr


@mounted
def test_what_cannot_be_written_again_arrives_though_each_first_try_fails(tmp_path: Path) -> None:
    """The last close of a model's weights once ended a training that had succeeded."""
    with blob_mount(tmp_path / "blob", BlobFaults(errors=1.0)) as place:
        for number in range(3):
            file = FrontToBack(place / f"weights-{number}")
            for piece in (b"abc", bytes(5_000_000)):
                file.write(piece)
            file.finish_streamed()
    for number in range(3):
        assert (tmp_path / "blob" / "behind" / f"weights-{number}").read_bytes() == b"abc" + bytes(5_000_000)

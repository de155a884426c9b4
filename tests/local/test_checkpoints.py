"""Which checkpoint is the newest whole one: what restarts and drills have to see alike, in ours and in others'."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from allranks.local.checkpoints import find_checkpoint, newest_checkpoint


def write(folder: Path, *names: str, content: str = "whole") -> None:
    """Write files, each a second older than the next one."""
    for age, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (1_000_000 + age, 1_000_000 + age))


def write_own(folder: Path, step: int, *, content: str = "{}") -> None:
    """A checkpoint of ours whose manifest says that its one file has two bytes."""
    write(folder / f"step-{step:08d}", "state.json", content=content)
    manifest = {"step": step, "files": {"state.json": {"bytes": 2}}}
    (folder / f"step-{step:08d}" / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("names", "path", "number", "step"),
    [
        (["model_epoch_3.pt", "model_epoch_2.pt"], "model_epoch_3.pt", 3, None),
        (["step=120-epoch=3.ckpt"], "step=120-epoch=3.ckpt", 120, 120),
        (["epoch=3-step=120.ckpt", "epoch=9-step=80.ckpt"], "epoch=3-step=120.ckpt", 120, 120),
        (["Checkpoint-7/a.bin", "checkpoint-5/shards-step-900.bin"], "Checkpoint-7", 7, 7),
        (
            ["logs/version_0/checkpoints/epoch=1-step=20.ckpt"],
            "logs/version_0/checkpoints/epoch=1-step=20.ckpt",
            20,
            20,
        ),
        (["checkpoint-1/a", "tmp-checkpoint-2/a", "checkpoint-3.part", ".checkpoint-4"], "checkpoint-1", 1, 1),
    ],
)
def test_the_highest_number_of_what_a_name_counts(
    tmp_path: Path, names: list[str], path: str, number: int, step: int | None
) -> None:
    write(tmp_path, *names)
    found = find_checkpoint([tmp_path])
    assert found is not None
    assert (found.path, found.number, found.step) == (tmp_path / path, number, step)
    assert newest_checkpoint([tmp_path]) == number


def test_what_is_empty_or_lacks_a_byte_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-9").mkdir()
    assert find_checkpoint([tmp_path]) is None
    write_own(tmp_path / "c", 20)
    write_own(tmp_path / "c", 40, content="{")
    write(tmp_path / "c", "best-step=99.ckpt")  # of the user's own, which no attempt of ours goes on from
    found = find_checkpoint([tmp_path])
    assert found is not None
    assert (found.path, found.step, newest_checkpoint([tmp_path])) == (tmp_path / "c" / "step-00000020", 20, 20)

"""Checkpoints that several ranks write: read by any number of ranks, whole or passed over; and who divides what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from shared.checkpoint import shards
from shared.distributed import Refusal
from shared.settings.command_line import read_settings
from shared.settings.network import DecoderSizes
from shared.settings.sharding import ParallelSettings
from shared.settings.trainer import TrainerSettings
from shared.training.fsdp import RankLayout, plan_layout
from shared.training.fsdp.layout import check_divisible
from tests.helpers import run_ranks

COMMON = """
    from datetime import timedelta
    from pathlib import Path
    import torch
    from shared.checkpoint import choose
    from shared.checkpoint import shards
    from shared.distributed import init
    from shared.checkpoint.shards import ShardPart, ShardReader

    whole = torch.arange(70.0).reshape(7, 10)

    def save(world, folder, step):
        first, last = (7 * world.rank // world.world_size, 7 * (world.rank + 1) // world.world_size)
        parts = [ShardPart("x", whole[first:last] + step, (7, 10), (first, 0))]
        if world.rank == 0:
            parts.append(ShardPart("count", torch.tensor(3.0 + step), (), ()))
        shards.save_shards(folder, step, parts, {"at": step}, {"rank": world.rank}, world, timedelta(seconds=30))
"""

WRITE = (
    COMMON
    + """
    with init() as world:
        for step in (5, 6, 7):
            save(world, "checkpoints", step)
"""
)

READ = (
    COMMON
    + """
    with init() as world:
        path = choose.choose_sharded_checkpoint(world, "checkpoints", None)
        saved = shards.ShardReader(path)
        half = torch.empty(7, 5)  # by columns, though it was written by rows
        saved.read("x", half, (0, 5 * world.rank))
        step = saved.state["at"]
        assert torch.equal(half, whole[:, 5 * world.rank : 5 * world.rank + 5] + step), half
        count = torch.empty(())
        saved.read("count", count, ())
        assert count == 3 + step
        print("read", path.name)
"""
)

DIE = (
    COMMON
    + """
    import os, signal
    with init() as world:
        if world.rank == 1:  # after its own file is written, before the others know
            world.collect = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        save(world, "checkpoints", 8)
"""
)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    results = run_ranks(WRITE, processes=3, cwd=tmp_path)
    assert [result.returncode for result in results] == [0, 0, 0], results[0].stderr
    return tmp_path / "checkpoints"


def test_other_ranks_read_other_pieces_of_the_newest_whole_one(written: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == ["latest.json", "step-00000006", "step-00000007"]
    newest = written / "step-00000007"
    assert sorted(path.name for path in newest.iterdir()) == [
        "manifest.json", *(f"rank-0000{rank}.{kind}" for rank in range(3) for kind in ("json", "safetensors")),
        "state.json",
    ]  # fmt: skip
    read = run_ranks(READ, processes=2, cwd=tmp_path)
    assert [result.stdout for result in read] == ["read step-00000007\n"] * 2, read[0].stderr

    results = run_ranks(DIE, processes=3, cwd=tmp_path)
    assert results[1].returncode == -9
    assert list(written.glob(".writing-*"))

    shard = newest / "rank-00001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    read = run_ranks(READ, processes=2, cwd=tmp_path)
    assert [result.stdout for result in read] == ["read step-00000006\n"] * 2, read[0].stderr
    assert "step-00000007 is passed over: rank-00001.safetensors has" in read[0].stderr


def test_what_is_missing_in_it_is_said(tmp_path: Path) -> None:
    pieces = json.dumps({"x": [[4, 2], [0, 0], [3, 2]]})
    save_file({"x": torch.ones(3, 2)}, tmp_path / "rank-00000.safetensors", {"pieces": pieces})
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"rank-00000.safetensors": {}, "state.json": {}}}))
    reader = shards.ShardReader(tmp_path)
    reader.read("x", torch.empty(2, 2), (1, 0))
    with pytest.raises(Refusal, match=r"of x \[2, 2\] at \[2, 0\] it holds 2 of 4 elements"):
        reader.read("x", torch.empty(2, 2), (2, 0))
    with pytest.raises(Refusal, match=r"of y \[1\] at \[0\] it holds 0 of 1 elements"):
        reader.read("y", torch.empty(1), (0,))


@dataclass(frozen=True, kw_only=True)
class Settings(TrainerSettings):
    decoder: DecoderSizes
    parallel: ParallelSettings


def asked(**given: object) -> tuple[ParallelSettings, DecoderSizes, int]:
    ports = {"data": "d", "model": "m", "checkpoints": "c", "metrics": "x", "accumulation_steps": 4}
    pairs = (ports | given).items()
    words = [text for name, value in pairs for text in ("--" + name.replace("_", "-"), str(value))]
    settings = read_settings(Settings, words=words)
    return settings.parallel, settings.decoder, settings.batch.accumulation_steps


def test_degrees_multiply_to_the_ranks() -> None:
    assert plan_layout(*asked(tensor_parallel=2, pipeline_parallel=2), 8) == RankLayout(2, 2, 2)
    assert plan_layout(*asked(), 3) == RankLayout(3)
    with pytest.raises(Refusal) as refusal:
        plan_layout(*asked(tensor_parallel=2, pipeline_parallel=2), 6)
    assert "data_parallel(1) x tensor_parallel(2) x pipeline_parallel(2) = 4 ranks wanted, 6 are there" in str(
        refusal.value
    )
    with pytest.raises(Refusal, match=r"data_parallel\(1\) x tensor_parallel\(4\) .* = 4 ranks wanted, 2 are there"):
        plan_layout(*asked(tensor_parallel=4), 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"tensor_parallel": 2, "heads": 3}, "heads 3 does not divide by tensor_parallel"),
        ({"tensor_parallel": 2, "key_value_heads": 1}, "key_value_heads 1 does not divide by tensor_parallel"),
        ({"pipeline_parallel": 2, "layers": 3}, "layers 3 does not divide by pipeline_parallel"),
        ({"tensor_parallel": 2, "tie_embeddings": "true"}, "tie_embeddings true needs"),
        ({"pipeline_parallel": 2, "accumulation_steps": 1}, r"accumulation_steps\(1\) < pipeline_parallel\(2\)"),
    ],
)
def test_the_model_divides_by_the_degrees(given: dict[str, object], text: str) -> None:
    with pytest.raises(Refusal, match=text):
        plan_layout(*asked(**given), 2)


def test_the_sequence_divides_too() -> None:
    check_divisible(RankLayout(1, 2), 16, 96)
    with pytest.raises(Refusal, match=r"sequence_length 15 does not divide by tensor_parallel\(2\)"):
        check_divisible(RankLayout(1, 2), 15, 96)

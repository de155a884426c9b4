"""Checkpoints that several ranks write: read by any number of ranks, whole or passed over; and who divides what."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from shared.checkpoint import reading, saving
from shared.checkpoint.reading import checkpoints_to_try
from shared.checkpoint.tensor_file import ShardPart, write_tensor_file
from shared.distributed import Refusal, World
from tests.helpers import finish, run_ranks, started_ranks
from tests.shared.distributed.threads import on_ranks
from tests.waiting import TIMEOUT

WHOLE = torch.arange(70.0).reshape(7, 10)


def save(engine: saving.CheckpointEngine, world: World, step: int) -> None:
    first, last = (7 * world.rank // world.world_size, 7 * (world.rank + 1) // world.world_size)
    parts = [ShardPart("x", WHOLE[first:last] + step, (7, 10), (first, 0))]
    if world.rank == 0:
        parts.append(ShardPart("count", torch.tensor(3.0 + step), (), ()))
    engine.save(step, parts, {"at": step}, {"rank": world.rank})


def write(world: World, folder: Path) -> None:
    engine = saving.CheckpointEngine(world, folder, timedelta(seconds=TIMEOUT))
    for step in (5, 6, 7):
        save(engine, world, step)
    engine.close()


def read(world: World, folder: Path) -> str:
    path = next(checkpoints_to_try(world, folder, None))
    saved = reading.CheckpointReader(path)
    half = torch.empty(7, 5)  # by columns, though it was written by rows
    saved.read("x", half, (0, 5 * world.rank))
    step = saved.state["at"]
    assert torch.equal(half, WHOLE[:, 5 * world.rank : 5 * world.rank + 5] + step), half
    count = torch.empty(())
    saved.read("count", count, ())
    assert count == 3 + step
    return path.name


DIE = """
    import os, signal
    from datetime import timedelta
    from pathlib import Path
    import torch
    from shared.checkpoint.saving import CheckpointEngine
    from shared.distributed import World, init
    from tests.shared.test_sharded_checkpoint import save
    with init() as world:
        engine = CheckpointEngine(world, Path("checkpoints"), timedelta(seconds=300))
        if world.rank == 1:  # after its own file is written, before the others know
            World.collect = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        save(engine, world, 8)
        engine.wait()
"""


@pytest.mark.slow
def test_other_ranks_read_other_pieces_of_the_newest_whole_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "checkpoints"
    assert on_ranks(3, lambda world: write(world, written)) == [None] * 3
    assert sorted(path.name for path in written.iterdir()) == ["latest.json", "step-00000006", "step-00000007"]
    newest = written / "step-00000007"
    assert sorted(re.sub("-[0-9a-f]{8}x3", "", path.name) for path in newest.iterdir()) == [
        "manifest.json", *(f"rank-0000{rank}.{kind}" for rank in range(3) for kind in ("json", "safetensors")),
        "state.json",
    ]  # fmt: skip
    assert on_ranks(2, lambda world: read(world, written)) == ["step-00000007"] * 2

    results = run_ranks(DIE, processes=3, cwd=tmp_path)
    assert results[1].returncode == -9, results[1].stderr
    assert list((written / "step-00000008").glob("rank-*"))
    assert not list((written / "step-00000008").glob("manifest.json"))

    (shard,) = newest.glob("rank-00001-*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-4])
    assert on_ranks(2, lambda world: read(world, written)) == ["step-00000006"] * 2
    assert "step-00000007 is passed over: rank-00001-" in capfd.readouterr().err


HANG = """
    import os, signal, threading
    from datetime import timedelta
    from pathlib import Path
    import numpy as np
    from shared.checkpoint import saving
    from shared.checkpoint.tensor_file import ShardPart
    from shared.distributed import control, init, joining

    def hang(*_):
        {how}

    saving.VISIBLE_SECONDS = 0.5
    control.ANSWER_SECONDS = {patience}
    joining.Heartbeat.start = lambda _: None  # or it may find the process that is stopped first
    with init() as world:
        if world.rank == {rank}:
            saving.{where} = hang
        engine = saving.CheckpointEngine(world, Path("checkpoints"), timedelta(seconds=3))
        engine.save(1, [ShardPart("x", np.ones(4), (8,), (4 * world.rank,))], {{}})
        engine.wait()
"""
HANG_ALIVE = "threading.Event().wait()"
STOP = f"os.kill(os.getpid(), signal.SIGSTOP); {HANG_ALIVE}"  # the main thread may be the one that is stopped first


@pytest.mark.parametrize(
    ("rank", "where", "how", "patience", "said"),
    [
        (1, "write_rank_files", STOP, 60, "files of step 1': timed out waiting for rank 1."),
        (0, "commit_checkpoint", STOP, 0.5, "Rank 0 (node 0) does not answer: its process is stopped or hangs."),
        (0, "commit_checkpoint", HANG_ALIVE, 60, "commit step 1': timed out waiting for rank 0."),
    ],
)
def test_who_waits_for_a_save_names_the_rank_that_hangs_in_it(
    rank: int, where: str, how: str, patience: float, said: str
) -> None:
    with started_ranks(HANG.format(rank=rank, where=where, how=how, patience=patience), 1, 2) as ranks:
        (result,) = finish([ranks[1 - rank]])
    assert result.returncode == 1
    assert said in result.stderr


def test_what_is_missing_in_it_is_said(tmp_path: Path) -> None:
    engine = saving.CheckpointEngine(None, tmp_path, timedelta(seconds=30))
    engine.save(1, [ShardPart("x", torch.ones(3, 2), (4, 2), (0, 0))], {})
    engine.close()
    reader = reading.CheckpointReader(tmp_path / "step-00000001")
    reader.read("x", torch.empty(2, 2), (1, 0))
    with pytest.raises(Refusal, match=r"of x \[2, 2\] at \[2, 0\] it holds 2 of 4 elements"):
        reader.read("x", torch.empty(2, 2), (2, 0))
    with pytest.raises(Refusal, match=r"of y \[1\] at \[0\] it holds 0 of 1 elements"):
        reader.read("y", torch.empty(1), (0,))


def test_the_same_pieces_make_the_same_bytes_in_whatever_order_they_come(tmp_path: Path) -> None:
    parts = [ShardPart.whole(name, torch.full((3,), number)) for number, name in enumerate(("b", "a", "c"))]
    parts.append(ShardPart.whole("wide", torch.ones(2, dtype=torch.float64)))
    for name, ordered in {"one": parts, "other": parts[::-1]}.items():
        write_tensor_file(tmp_path / name, ordered)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()

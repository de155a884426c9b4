"""What each rank alone has to keep lies in a file of its own, whatever the number of ranks, and never on the wire."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from shared.checkpoint import files, reading, saving
from shared.checkpoint.tensor_file import DamageError, ShardPart
from shared.distributed import ControlError, Refusal, World
from shared.distributed.control import Control
from shared.training.torch.state import random_state, restore_random_state
from tests.shared.distributed.threads import on_ranks

TIMEOUT = timedelta(seconds=60)


def save(world: World, folder: Path, step: int, own: Any) -> None:
    engine = saving.CheckpointEngine(world, folder, TIMEOUT)
    parts = [ShardPart.whole("weight", np.arange(4.0))] if world.is_main else []
    engine.save(step, parts, {"world_size": world.world_size}, own)
    engine.close()


def draw() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002


@pytest.mark.slow
def test_64_ranks_save_their_states_without_sending_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, exchange = Counter[str](), Control._ask_within

    def counted(control: Control, message: dict[str, Any], limit: float | None) -> Any:
        answer = exchange(control, message, limit)
        sent[message["op"]] += len(json.dumps(message)) + len(json.dumps(answer))
        return answer

    filler = "x" * 20_000  # as large as the states of torch's, NumPy's and Python's generators
    monkeypatch.setattr(Control, "_ask_within", counted)
    on_ranks(64, lambda world: save(world, tmp_path, 7, {"rank": world.rank, "filler": filler}))
    assert sum(sent.values()) < 64 * 2000
    (path,) = tmp_path.glob("step-*")
    assert files.find_damage(path) is None
    saved = reading.CheckpointReader(path)
    assert [saved.own_state(rank)["rank"] for rank in range(64)] == [*range(64)]


def test_gathered_values_are_encoded_once_and_what_a_rank_may_give_is_bounded() -> None:
    def give(world: World) -> object:
        text = "y" * (17 * 2**20) if world.rank == 1 else "y"
        return world.gather(text, "large")

    results = on_ranks(3, give)
    assert "gather 'large': a value of 17,82" in str(results[1])
    assert "too much for the control plane (limit 16,777,216). Write it to a file" in str(results[1])
    assert all(isinstance(result, ControlError) for result in results)

    values = on_ranks(3, lambda world: world.gather("z" * (4 * 2**20), "four MiB")[world.rank][:3])
    assert values == ["zzz"] * 3
    collected = on_ranks(3, lambda world: world.collect(world.rank, "ranks"))
    assert collected == [[0, 1, 2], None, None]


def test_random_numbers_go_on_on_as_many_ranks(tmp_path: Path) -> None:
    on_ranks(1, lambda world: save(world, tmp_path, 3, {"generators": random_state()}))
    expected = draw()
    (path,) = tmp_path.glob("step-*")
    saved = reading.CheckpointReader(path)
    restore_random_state(saved, SimpleNamespace(rank=0, world_size=1))
    assert draw() == expected
    restore_random_state(saved, SimpleNamespace(rank=0, world_size=2))  # fresh sequences are left as they are
    assert draw() != expected


@pytest.mark.parametrize("harm", ["flip", "remove", "forge"])
def test_a_rank_file_that_is_damaged_is_noticed(harm: str, tmp_path: Path) -> None:
    on_ranks(2, lambda world: save(world, tmp_path, 3, {"rank": world.rank}))
    (path,) = tmp_path.glob("step-*")
    (file,) = path.glob("rank-00001-*.json")
    if harm == "flip":
        file.write_text(file.read_text().replace("1", "2"))
    elif harm == "remove":
        file.unlink()
    else:
        shutil.copyfile(file, path / file.name.replace("00001", "00002"))
    assert (reading.newest_valid_checkpoint(tmp_path) is None) == (harm != "forge")
    with pytest.raises(Refusal if harm == "forge" else DamageError, match=r"rank 2|rank-00001"):
        reading.CheckpointReader(path).own_state(2 if harm == "forge" else 1)


def test_nodes_that_do_not_share_the_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "VISIBLE_SECONDS", 0.3)
    refused = on_ranks(2, lambda world: save(world, tmp_path / f"node{world.rank}", 3, {}), nodes=2)
    assert "rank-00001-" in str(refused[0])
    assert "has to be the same one on all nodes" in str(refused[0])
    assert not list(tmp_path.rglob("manifest.json"))

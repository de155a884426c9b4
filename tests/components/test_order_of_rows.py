"""Which rows each optimizer step is made of: the same in the same order, however many ranks there are and are killed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.components.launched import kill_one, launched
from tests.components.training import furthest, lines, weights, write_digits
from tests.helpers import finish
from tests.waiting import wait_for

CHAIN = (4, 2, 1, 4)
"""Ranks of one start after the other; all but the last are killed."""
OPTIONS: dict[str, Any] = {"epochs": 3, "batch_size": 16, "log_every": 1, "checkpoint_every": 5, "precision": "fp64"}
Rows = list[str]

# Each batch that a rank takes, by the step that is made of it.
RECORD = """
import hashlib, importlib, json, os, sys, time
feed = importlib.import_module(sys.argv[1])
given, began = feed.BatchFeed.epoch, time.time()
def epoch(self, epoch, start_batch=0):
    plan, rank = self._plan, self._rank
    path = f"rows-{began}-{os.getpid()}.jsonl"
    for number, batch in enumerate(given(self, epoch, start_batch), start=start_batch):
        x = batch[0].numpy()
        rows = [hashlib.sha256(row.tobytes()).hexdigest() for row in x]
        line = {"step": epoch * self.steps_per_epoch + number, "rank": rank, "world": plan.world_size, "rows": rows}
        with open(path, "a") as opened:
            opened.write(json.dumps(line) + chr(10))
        yield batch
feed.BatchFeed.epoch = epoch
"""


def recording(folder: Path, framework: str) -> str:
    """A statement that has a rank keep in its working folder which rows it takes."""
    (folder / "record.py").write_text(RECORD)
    module = f"shared.training.{framework}.feed"
    return f"sys.argv = ['', {module!r}]; runpy.run_path({str(folder / 'record.py')!r})"


def taken_rows(folder: Path, world: int) -> dict[int, Rows]:
    """The rows of each step that all ranks of a start have taken, in the order of the ranks; its files are removed."""
    parts: dict[int, dict[int, Rows]] = defaultdict(dict)
    for path in folder.glob("rows-*.jsonl"):
        text, _, _ = path.read_text().rpartition("\n")
        for line in map(json.loads, text.splitlines()):
            assert line["world"] == world
            parts[line["step"]][line["rank"]] = line["rows"]
        path.unlink()
    whole = {step: ranks for step, ranks in parts.items() if len(ranks) == world}
    return {step: [row for _, rows in sorted(ranks.items()) for row in rows] for step, ranks in whole.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"), rows=500)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "framework"),
    [
        ("train_ddp", "torch"),
        *(
            pytest.param(trainer, framework, marks=pytest.mark.exhaustive)
            for trainer, framework in (
                ("train_torchrun", "torch"),
                ("train_horovod", "torch"),
                ("train_tf_multiworker", "keras"),
            )
        ),
    ],
)
def test_killed_on_four_two_and_one_rank_the_steps_have_the_same_rows_in_the_same_order(
    trainer: str, framework: str, data: Path, tmp_path: Path
) -> None:
    draw = random.Random(f"{trainer} 16")
    before, out, alone = recording(tmp_path, framework), tmp_path / "killed", tmp_path / "alone"
    with launched(trainer, data, alone, OPTIONS, count=1, before=before) as ranks:
        assert [result.returncode for result in finish(ranks)] == [0]
    wanted = taken_rows(alone, 1)
    steps = len(wanted)
    assert sorted(wanted) == list(range(steps))
    for first in range(0, steps, steps // 3):
        epoch = [row for step in range(first, first + steps // 3) for row in wanted[step]]
        assert len(set(epoch)) == len(epoch), "no row comes twice in an epoch"

    done = 0
    for number, count in enumerate(CHAIN):
        with launched(trainer, data, out, OPTIONS, count=count, before=before) as ranks:
            if number < len(CHAIN) - 1:
                enough = 13 * (number + 1) + draw.randrange(5)
                wait_for(lambda: max((line["step"] for line in lines(out)), default=0) >= enough)  # noqa: B023
                kill_one(ranks, draw)
            codes = [result.returncode for result in finish(ranks)]
        assert any(codes) == (number < len(CHAIN) - 1), codes
        taken = taken_rows(out, count)
        assert taken == {step: wanted[step] for step in taken}
        assert sorted(taken) == list(range(min(taken), max(taken) + 1))
        assert min(taken) <= done, "no step is left out"
        assert number == 0 or min(taken) > 0, "it goes on from a checkpoint"
        done = max(taken) + 1
    assert done == steps
    assert furthest_of(trainer, out, alone) < 1e-9


def furthest_of(trainer: str, one: Path, other: Path) -> float:
    """Largest difference between the weights of two models; of Keras, whose files are others, there is no measure."""
    return 0.0 if trainer == "train_tf_multiworker" else furthest(weights(one), weights(other))

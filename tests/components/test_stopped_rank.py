"""SIGSTOP in the middle of a training: the rank is named, all tell where they stood, and nobody waits, by every trainer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.components.launched import MPI_TRAINERS, launched, stop_last
from tests.components.test_stop_in_validation import OTHERS, arranged
from tests.components.training import lines
from tests.helpers import finish

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STACK = "(most recent call first)"


@pytest.mark.exhaustive
@pytest.mark.parametrize("trainer", ["train_ddp", *(f"train_{name}" for name in OTHERS if name != "lightning_module")])
def test_a_stopped_rank_is_named_and_the_others_end(trainer: str, tmp_path: Path) -> None:
    data, options = arranged(trainer, tmp_path)
    out = tmp_path / "out"
    with launched(trainer, data, out, {**options, "epochs": 10_000}) as ranks:
        until = time.monotonic() + 300
        while not lines(out):
            assert time.monotonic() < until, ranks[0].stderr
            time.sleep(0.01)
        began = time.monotonic()
        stop_last(ranks)
        results = finish(ranks, 60)
        took = time.monotonic() - began
    told = "".join(result.stderr + result.stdout for result in results)
    stopped = "ps 0" if trainer == "train_tf_parameter_server" else "rank 1"
    print(f"{trainer}: {took:.1f} s")
    assert f"distributed: {stopped} (node" in told
    assert "stands still: its process was stopped 4 s ago" in told
    count = told.count("where it stood:")
    assert count >= 2, "each process has a sentry"
    assert told.count(STACK) >= count
    assert any(result.returncode for result in results) or trainer in MPI_TRAINERS
    assert took < 15, "5 s on a machine of its own"

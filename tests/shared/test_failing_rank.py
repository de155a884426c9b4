"""A rank that fails is heard of at once: by the other ranks and by whoever started it, whatever is slow to be closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_ranks

CODE = """
import threading, types
from pathlib import Path
from contextlib import contextmanager, nullcontext
from shared import tracking
from shared.distributed import Refusal, init
from shared.settings.command_line import read_settings
from shared.settings.trainer import TrainerSettings
from shared.training.core.position import TrainingPosition
from shared.training.core.run import TrainingRun
from tests.waiting import wait_for

tracking._MLflowThread._send_all = lambda _: threading.Event().wait()  # as with a server that never answers

@contextmanager
def closing_late():
    try:
        yield
    finally:
        wait_for(Path("heard").exists)  # what is slow to be closed waits for what a rank does that has heard

words = [part for flag in ("data", "model", "checkpoints", "metrics") for part in ("--" + flag, flag)]
settings = read_settings(TrainerSettings, words=[*words, "--epochs", "1"])
schedule = types.SimpleNamespace(steps=1)
meter, saver = types.SimpleNamespace(stopping_on_sigterm=nullcontext), types.SimpleNamespace(own_step=None)
with init() as world, closing_late(), TrainingRun(settings, world, saver, TrainingPosition(), schedule, meter) as run:
    run.log({{"loss": 1.0}})
    world.barrier("all have begun")
    if world.rank == {failing}:
        raise {error}("no")
    try:
        world.barrier("a rank is missing")
    finally:
        Path("heard").touch()
"""


@pytest.mark.parametrize(
    ("failing", "error", "code"),
    [
        (1, "ValueError", 1),
        (0, "Refusal", 2),
        pytest.param(0, "ValueError", 1, marks=pytest.mark.exhaustive),
    ],
)
def test_nobody_waits_for_a_tracking_server_or_for_what_is_closed_late(
    failing: int, error: str, code: int, tmp_path: Path
) -> None:
    address = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    results = run_ranks(CODE.format(failing=failing, error=error), env=address, cwd=tmp_path)
    assert [result.returncode for result in results] == [code, code]
    assert sum(result.stderr.count("error: no") for result in results) == (code == 2)
    assert code == 2 or f"rank {failing} (node 0) failed with ValueError: no" in results[1 - failing].stderr
    assert "before this" not in results[failing].stderr

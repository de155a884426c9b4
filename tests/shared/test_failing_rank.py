"""A rank that fails is heard of at once: by the other ranks and by whoever started it, whatever is slow to be closed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import RankResult, azure_variables, finish, free_port, started

CODE = """
import argparse, time, types
from contextlib import contextmanager, nullcontext
from shared.distributed import Refusal, init
from shared.settings.command_line import read_settings
from shared.settings.trainer import TrainerSettings
from shared.training.core.position import TrainingPosition
from shared.training.core.run import TrainingRun

@contextmanager
def slow(seconds):
    try:
        yield
    finally:
        time.sleep(seconds)

words = [part for flag in ("data", "model", "checkpoints", "metrics") for part in ("--" + flag, flag)]
settings = read_settings(TrainerSettings, words=[*words, "--epochs", "1"])
schedule = types.SimpleNamespace(steps=1)
meter, saver = types.SimpleNamespace(stopping_on_sigterm=nullcontext), types.SimpleNamespace(own_step=None)
with init() as world, slow({closing}), TrainingRun(settings, world, saver, TrainingPosition(), schedule, meter) as run:
    run.log({{"loss": 1.0}})
    time.sleep(0.2)
    world.barrier("all have begun")
    if world.rank == {failing}:
        print("raised", time.time(), flush=True)
        raise {error}
    try:
        world.barrier("a rank is missing")
    except BaseException:
        print("heard", time.time(), flush=True)
        raise
"""


@contextmanager
def silent_server() -> Iterator[str]:
    """A tracking server that takes every connection and never answers; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    accepted.append(server.accept()[0])
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for connection in accepted:
            connection.close()


def failed(code: str, folder: Path) -> tuple[list[RankResult], float, list[float]]:
    """Two ranks, one of which fails beside a silent server: how they ended, when it raised, when each had ended."""
    port = free_port()
    with silent_server() as address:
        environments = [{**azure_variables(rank, 1, 2, port), "MLFLOW_TRACKING_URI": address} for rank in range(2)]
        with started(code, environments, folder) as ranks:
            ended: dict[int, float] = {}
            until = time.monotonic() + 60
            while len(ended) < 2 and time.monotonic() < until:
                ended |= {r.rank: time.time() for r in ranks if r.rank not in ended and r.process.poll() is not None}
                time.sleep(0.005)
            results = finish(ranks, 1)
    said = dict(line.split() for result in results for line in result.stdout.splitlines())
    return results, float(said["raised"]), [float(said["heard"]), *(ended[rank] for rank in range(2))]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_tracking_server_that_never_answers_keeps_nobody_waiting(failing: int, tmp_path: Path) -> None:
    code = CODE.format(closing=0, failing=failing, error="ValueError('no')")
    results, raised, (heard, *ended) = failed(code, tmp_path)
    print(f"heard after {heard - raised:.2f} s, ended after {[round(when - raised, 2) for when in ended]} s")
    assert [result.returncode for result in results] == [1, 1]
    assert heard - raised < 3
    assert max(ended) - raised < 10
    assert ended[failing] < ended[1 - failing]  # the launcher reports the log of the rank that ended first
    assert f"rank {failing} (node 0) failed with ValueError: no" in results[1 - failing].stderr
    assert "before this" not in results[failing].stderr


@pytest.mark.parametrize(("error", "code"), [("ValueError('no')", 1), ("Refusal('no')", 2)])
def test_what_takes_long_to_close_comes_after_the_others_have_heard(error: str, code: int, tmp_path: Path) -> None:
    results, raised, (heard, *_) = failed(CODE.format(closing=2, failing=0, error=error), tmp_path)
    assert [result.returncode for result in results] == [code, code]
    assert heard - raised < 2
    assert sum(result.stderr.count("error: no") for result in results) == (code == 2)

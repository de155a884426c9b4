"""All ranks stop after the same step, whichever was asked and however far each is."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.helpers import azure_variables, finish, free_port, started

STEP = """
    import random, sys, time
    from shared.distributed import init
    from shared.training.core.meter import LossMeter

    class Meter(LossMeter):
        def _agree(self, wish):
            return 0.0, 0.0

    with init() as world:
        meter, draw = Meter(world, counts_waits=False), random.Random(world.rank)
        with meter.stopping_on_sigterm():
            step = 0
            while True:
                if step % {every} == 0:  # or the ranks would not be near each other
                    world.barrier("step")
                time.sleep(draw.random() * 0.01)
                step += 1
                if step == 5:
                    print("begun", flush=True)
                if meter.stop.is_last():
                    break
        print("stopped", step, flush=True)
"""


def stops(tmp_path: Path, every: int, asked: list[int]) -> set[str]:
    port = free_port()
    with started(STEP.format(every=every), [azure_variables(rank, 1, 3, port) for rank in range(3)], tmp_path) as ranks:
        for rank in ranks:
            rank.wait_for("begun")
        began = time.monotonic()
        for number in asked:
            ranks[number].kill(signal.SIGTERM)
        results = finish(ranks, 30)
    assert [result.returncode for result in results] == [0, 0, 0], results[0].stderr
    assert time.monotonic() - began < 10
    return {result.stdout.splitlines()[-1] for result in results}


def test_one_rank_is_asked(tmp_path: Path) -> None:
    assert len(stops(tmp_path, 1, [2])) == 1


def test_all_are_asked_and_may_be_some_steps_apart(tmp_path: Path) -> None:
    assert len(stops(tmp_path, 4, [1, 0, 2])) == 1

"""All ranks stop after the same step, whichever was asked and however far each is."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.helpers import finish, started_ranks

STEP = """
    from pathlib import Path
    from shared.distributed import init
    from shared.training.core.meter import LossMeter
    from tests.waiting import wait_for

    class Meter(LossMeter):
        def _agree(self, wish):
            return 0.0, 0.0

    with init() as world:
        meter = Meter(world, counts_waits=False)
        with meter.stopping_on_sigterm():
            step = 0
            while True:
                if step % {every} == 0:  # or the ranks would not be near each other
                    world.barrier("step")
                step += 1
                if step == 5:
                    print("begun", flush=True)
                if meter.stop.is_last():
                    break
        print("stopped", step, flush=True)
        wait_for(Path("end").exists)  # as long as it takes to save a model
"""

SERVED = """
    import signal, threading
    from pathlib import Path
    from shared.distributed import init
    from shared.training.core.stopping import StopAgreement, end_service, serve_training
    from tests.waiting import wait_for

    def tell_when_serving():
        wait_for(lambda: signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
        print("begun", flush=True)

    with init() as world:
        if world.rank:
            threading.Thread(target=tell_when_serving).start()
            print("stopped", serve_training(world), flush=True)
        else:
            print("begun", flush=True)
            with StopAgreement(world, alone=True) as stop:
                wait_for(stop.is_last)
            end_service(world)
            print("stopped", flush=True)
        wait_for(Path("end").exists)
"""


def stops(tmp_path: Path, script: str, asked: list[int], asked_later: tuple[int, ...] = ()) -> list[str]:
    """The last lines of three ranks, of which some are asked to stop, and some when all have stopped and none has left."""
    with started_ranks(script, 1, 3, cwd=tmp_path) as ranks:
        for rank in ranks:
            rank.wait_for("begun")
        for number in asked:
            ranks[number].kill(signal.SIGTERM)
        for rank in ranks:
            rank.wait_for("stopped")
        for number in asked_later:
            ranks[number].kill(signal.SIGTERM)
        tmp_path.joinpath("end").touch()
        results = finish(ranks)
    assert [result.returncode for result in results] == [0, 0, 0], results[0].stderr
    return [result.stdout.splitlines()[-1] for result in results]


def test_one_rank_is_asked(tmp_path: Path) -> None:
    assert len(set(stops(tmp_path, STEP.format(every=1), [2]))) == 1


def test_all_are_asked_and_may_be_some_steps_apart(tmp_path: Path) -> None:
    assert len(set(stops(tmp_path, STEP.format(every=4), [1, 0, 2]))) == 1


def test_who_is_asked_when_all_have_stopped_is_still_there_for_the_others(tmp_path: Path) -> None:
    assert len(set(stops(tmp_path, STEP.format(every=1), [2], (0, 1, 2)))) == 1


def test_who_serves_and_is_asked_when_all_is_over_is_still_there_for_the_others(tmp_path: Path) -> None:
    assert stops(tmp_path, SERVED, [1], (1, 2)) == ["stopped", "stopped False", "stopped True"]

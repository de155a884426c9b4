"""Which rank is named, from heartbeats that a test writes: no process, and no time but the test's."""

from __future__ import annotations

from typing import Any

import pytest

from shared.distributed.hang import MISSING_SECONDS, HangDiagnosis

WORKER = "worker"
LIMIT = 300.0
STEP = {
    "silent": 0.0,
    "steps": 40,
    "in_step": True,
    "limit": LIMIT,
    "place": "/code/train.py:33 (loss)",
    "debugged": False,
}
WAITS = {"place": "/site-packages/torch/distributed/distributed_c10d.py:3252 (all_reduce)"}
PAUSE = {"in_step": False, "place": "/code/train.py:50 (save)"}


class Ranks:
    """The diagnosis of a world whose ranks are workers, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._diagnosis = HangDiagnosis()
        self.waiting: dict[tuple[str, int], bool] = {}

    def beat(self, *states: dict[str, Any], silent: float) -> str:
        """Take a heartbeat of each rank, and return the verdict."""
        for rank, state in enumerate(states):
            member = (WORKER, rank)
            self.waiting.setdefault(member, False)
            self._diagnosis.record(member, f"rank {rank} (node 0)", {**STEP, "silent": silent, **state}, self.now)
        return self._diagnosis.find(self.waiting, self.now)

    def beat_without(self, missing: int, *states: dict[str, Any], seconds: int) -> str:
        """Take heartbeats of all ranks but one, once a second; the last verdict."""
        found = self.beat(*states, silent=0.0)
        for second in range(1, seconds + 1):
            self.now += 1.0
            for rank, state in enumerate(states):
                if rank != missing:
                    beat = {**STEP, "silent": float(second), **state}
                    self._diagnosis.record((WORKER, rank), f"rank {rank} (node 0)", beat, self.now)
            found = self._diagnosis.find(self.waiting, self.now)
        return found


def test_nobody_is_named_before_the_limit() -> None:
    assert Ranks().beat(WAITS, {}, silent=LIMIT - 1) == ""


def test_the_rank_is_named_that_is_in_no_collective() -> None:
    assert Ranks().beat(WAITS, {}, WAITS, silent=LIMIT) == (
        "rank 1 (node 0) makes no progress: nothing has moved for 300 s, and it stands at /code/train.py:33 (loss)."
    )


def test_the_rank_with_the_fewest_steps_is_named_wherever_it_stands() -> None:
    assert Ranks().beat({}, {**WAITS, "steps": 39}, silent=LIMIT).startswith("rank 1 (node 0) makes no progress: ")


def test_a_rank_that_waits_at_the_control_plane_is_not_named() -> None:
    ranks = Ranks()
    ranks.waiting[WORKER, 0] = True
    assert ranks.beat({}, WAITS, silent=LIMIT).startswith("rank 1 (node 0) makes no progress: ")


def test_all_are_named_that_cannot_be_told_apart() -> None:
    found = Ranks().beat({}, {}, WAITS, silent=LIMIT)
    assert found.startswith("rank 0 (node 0) makes no progress: ")
    assert found.endswith("; nor does rank 1 (node 0).")


def test_a_rank_without_a_heartbeat_is_named_at_the_limit_and_not_before() -> None:
    assert Ranks().beat_without(1, {}, {}, seconds=int(LIMIT) - 1) == ""
    found = Ranks().beat_without(1, {}, {}, seconds=int(LIMIT))
    assert found.startswith(
        "rank 1 (node 0) makes no progress: nothing has moved for 300 s, and its heartbeat has been "
    )


def test_a_rank_that_has_left_is_not_named() -> None:
    ranks = Ranks()
    ranks.beat({}, {}, silent=0.0)
    del ranks.waiting[WORKER, 1]
    ranks.now += 2
    assert ranks._diagnosis.find(ranks.waiting, ranks.now) == ""


@pytest.mark.parametrize(("seconds", "named"), [(LIMIT, ""), (2 * LIMIT - 6, ""), (2 * LIMIT - 5, "rank 1 (node 0)")])
def test_a_pause_may_last_almost_as_long_as_the_collectives_of_the_others(seconds: float, named: str) -> None:
    assert Ranks().beat(WAITS, PAUSE, silent=seconds).startswith(named)
    assert bool(Ranks().beat(WAITS, PAUSE, silent=seconds)) is bool(named)


def test_a_pause_of_all_may_last_for_ever() -> None:
    assert Ranks().beat(PAUSE, PAUSE, silent=100 * LIMIT) == ""


def test_a_rank_that_waits_in_a_pause_for_one_that_hangs_in_a_step_does_not_protect_it() -> None:
    assert Ranks().beat({**PAUSE, **WAITS}, {}, silent=LIMIT).startswith("rank 1 (node 0) makes no progress: ")


def test_nobody_is_named_while_a_rank_is_in_a_debugger() -> None:
    assert Ranks().beat(WAITS, {"debugged": True}, silent=LIMIT) == ""


def test_processes_that_serve_a_coordinator_count_no_steps_and_are_not_named() -> None:
    served = {"steps": 0, "in_step": False}
    assert Ranks().beat({}, served, served, silent=LIMIT).startswith("rank 0 (node 0) makes no progress: ")


def test_the_time_in_which_rank_0_itself_received_nothing_does_not_count() -> None:
    """It was in native code that keeps Python's lock, and its own heartbeat may be read first."""
    ranks = Ranks()
    ranks.beat({}, {}, silent=0.0)
    ranks.now += LIMIT
    assert ranks.beat({}, silent=0.0) == ""
    ranks.now += MISSING_SECONDS
    assert ranks.beat({"silent": 8.0}, silent=0.0) == ""


@pytest.mark.parametrize(("seconds", "named"), [(2 * LIMIT - 6, ""), (2 * LIMIT - 5, "rank 1 (node 0)")])
def test_a_collective_in_a_pause_has_the_limit_of_a_pause(seconds: float, named: str) -> None:
    """As in a save that gathers what it writes."""
    assert Ranks().beat({**PAUSE, **WAITS}, PAUSE, silent=seconds)[: len("rank 1 (node 0)")] == named


def test_a_rank_that_waits_for_one_that_moves_slowly_is_not_named() -> None:
    assert Ranks().beat(WAITS, {"silent": 0.5}, silent=LIMIT) == ""

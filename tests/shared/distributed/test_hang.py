"""Which rank is named, from heartbeats that a test writes: no process, and no time but the test's."""

from __future__ import annotations

from typing import Any

import pytest

from shared.distributed.hang import MISSING_SECONDS, HangDiagnosis, Report

WORKER = "worker"
LIMIT = 300.0
STEP = {
    "silent": 0.0,
    "steps": 40,
    "limit": LIMIT,
    "longest": LIMIT,
    "place": "/code/train.py:33 (loss)",
}
WAITS = {"place": "/site-packages/torch/distributed/distributed_c10d.py:3252 (all_reduce)"}
PAUSE = {"limit": 0.0, "place": "/code/train.py:50 (save)"}


class Ranks:
    """The diagnosis of a world whose ranks are workers, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.diagnosis = HangDiagnosis()
        self.members: list[tuple[str, int]] = []

    def beat(self, *states: dict[str, Any], silent: float) -> str:
        """Take a heartbeat of each rank, and return the verdict."""
        for rank, state in enumerate(states):
            report = Report(f"rank {rank} (node 0)", **{**STEP, "silent": silent, **state})
            self.diagnosis.record((WORKER, rank), report, self.now)
        self.members = self.members or [(WORKER, rank) for rank in range(len(states))]
        return self.diagnosis.find(self.members, self.now)

    def beat_without(self, missing: int, *states: dict[str, Any], seconds: int) -> str:
        """Take heartbeats of all ranks but one, once a second; the last verdict."""
        found = self.beat(*states, silent=0.0)
        for second in range(1, seconds + 1):
            self.now += 1.0
            for rank, state in enumerate(states):
                if rank != missing:
                    beat = Report(f"rank {rank} (node 0)", **{**STEP, "silent": float(second), **state})
                    self.diagnosis.record((WORKER, rank), beat, self.now)
            found = self.diagnosis.find(self.members, self.now)
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
    waits = {"place": "/code/shared/distributed/wire.py:115 (receive_message)"}
    assert Ranks().beat(waits, {}, silent=LIMIT).startswith("rank 1 (node 0) makes no progress: ")


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


def test_a_missing_heartbeat_is_printed_once_within_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    Ranks().beat_without(1, {}, {}, seconds=8)
    assert capsys.readouterr().err == ""
    Ranks().beat_without(1, {}, {}, seconds=60)
    assert capsys.readouterr().err == (
        "distributed: rank 1 (node 0): its heartbeat has been missing for 9 s (native code holds Python's lock, or "
        "its process is stopped); before that it stood at /code/train.py:33 (loss)\n"
    )


def test_a_rank_that_has_left_is_not_named() -> None:
    ranks = Ranks()
    ranks.beat({}, {}, silent=LIMIT - 1)
    ranks.now += 2
    ranks.diagnosis.record((WORKER, 0), Report("rank 0 (node 0)", **STEP), ranks.now)
    assert ranks.diagnosis.find([(WORKER, 0)], ranks.now) == ""


@pytest.mark.parametrize(("seconds", "named"), [(LIMIT, ""), (2 * LIMIT - 6, ""), (2 * LIMIT - 5, "rank 1 (node 0)")])
def test_a_pause_may_last_almost_as_long_as_the_collectives_of_the_others(seconds: float, named: str) -> None:
    assert Ranks().beat(WAITS, PAUSE, silent=seconds).startswith(named)
    assert bool(Ranks().beat(WAITS, PAUSE, silent=seconds)) is bool(named)


def test_a_pause_of_all_may_last_for_ever() -> None:
    assert Ranks().beat(PAUSE, PAUSE, silent=100 * LIMIT) == ""


def test_a_rank_that_waits_in_a_pause_for_one_that_hangs_in_a_step_does_not_protect_it() -> None:
    assert Ranks().beat({**PAUSE, **WAITS}, {}, silent=LIMIT).startswith("rank 1 (node 0) makes no progress: ")


def test_nobody_is_named_while_a_rank_is_in_a_debugger() -> None:
    assert Ranks().beat(WAITS, {"limit": 0.0, "silent": 0.0}, silent=LIMIT) == ""


def test_processes_that_serve_a_coordinator_count_no_steps_and_are_not_named() -> None:
    served = {"steps": 0, "limit": 0.0}
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

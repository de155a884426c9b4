"""Whom a fault strikes, in the process trees that torchrun and mpirun were seen to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.drill.faults import RankProcess, parse_fault, victims_of
from allranks.local.plan import PlannedStep
from allranks.spec.model import Component, Source

TORCHRUN = [
    *(RankProcess(1, 0, None, True), RankProcess(2, 1, None, False)),
    *(RankProcess(3, 2, 0, False), RankProcess(4, 2, 1, False), RankProcess(5, 3, 0, False)),
    *(RankProcess(6, 0, None, False), RankProcess(7, 6, 2, False), RankProcess(8, 6, 3, False)),
]
"""Of two nodes; the second one's shell has become its agent, and rank 0 has a child."""
MPIRUN = [
    *(RankProcess(1, 0, None, False), RankProcess(2, 1, None, True), RankProcess(3, 1, None, True)),
    *(RankProcess(4, 0, None, False), RankProcess(5, 4, 0, True), RankProcess(6, 5, 0, False)),
    *(RankProcess(7, 0, None, False), RankProcess(8, 7, 1, True), RankProcess(9, 8, 1, False)),
]
"""Open MPI 5: its daemons have left mpirun's tree."""


@pytest.mark.parametrize(
    ("running", "action", "victim", "struck"),
    [
        (TORCHRUN, "kill", "node=0", [1, 2, 3, 4, 5]),
        (TORCHRUN, "kill", "node=1", [6, 7, 8]),
        (TORCHRUN, "kill", "rank=0", [3, 5]),
        (TORCHRUN, "stop", "rank=0", [3]),
        (MPIRUN, "kill", "node=0", [1, 2, 3, 4, 5, 6]),
        (MPIRUN, "stop", "node=1", [7, 8, 9]),
        (MPIRUN, "kill", "rank=1", [8, 9]),
        (MPIRUN, "stop", "rank=1", [9]),
        ([], "kill", "rank=1", []),
    ],
)
def test_which_processes_are_struck(running: list[RankProcess], action: str, victim: str, struck: list[int]) -> None:
    component = Component("train", Source(None, Path()), command="python a.py")
    step = PlannedStep("command", "train", component, {}, {}, "pytorch", 2, 1 if running is MPIRUN else 2, {}, None)
    fault = parse_fault(action, f"{victim}@1s")
    assert sorted(victim.pid for victim in victims_of(fault, step, running)) == struck

"""Whom a fault of a launcher strikes, in the process trees that torchrun and mpirun were seen to make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from allranks.drill.faults import parse_fault, place_fault
from allranks.drill.victims import RankProcess, victims_of
from allranks.errors import UsageError
from allranks.local.plan import PlannedStep
from allranks.spec.model import Component, Source

SHELL, AGENT, RANK, SENTRY = "bash", "torchrun", "python", "python"
TORCHRUN = [
    *(RankProcess(1, 0, None, SHELL), RankProcess(2, 1, None, AGENT)),
    *(RankProcess(3, 2, 0, RANK), RankProcess(4, 2, 1, RANK), RankProcess(5, 3, 0, SENTRY)),
    *(RankProcess(6, 0, None, AGENT), RankProcess(7, 6, 2, RANK), RankProcess(8, 6, 3, RANK)),
]
"""Of two nodes; the second one's shell has become its agent."""
MPIRUN = [
    *(RankProcess(1, 0, None, "prterun"), RankProcess(2, 1, None, "sh"), RankProcess(3, 1, None, "sh")),
    *(RankProcess(4, 0, None, "prted"), RankProcess(5, 4, 0, SHELL), RankProcess(6, 5, 0, RANK)),
    *(RankProcess(7, 0, None, "prted"), RankProcess(8, 7, 1, SHELL), RankProcess(9, 8, 1, RANK)),
]
"""Open MPI 5: its daemons have left mpirun's tree."""


def planned(command: str, distribution: str, processes: int) -> PlannedStep:
    component = Component("train", Source(None, Path()), command=command)
    return PlannedStep("command", "train", component, {}, {}, distribution, 2, processes, {}, None)


@pytest.mark.parametrize(
    ("node", "running", "struck"),
    [(0, TORCHRUN, [2]), (1, TORCHRUN, [6]), (0, MPIRUN, [1]), (1, MPIRUN, [7]), (1, TORCHRUN[:5], []), (0, [], [])],
)
def test_what_has_started_a_nodes_ranks(node: int, running: list[RankProcess], struck: list[int]) -> None:
    by_mpi = running is MPIRUN
    step = planned("python a.py" if by_mpi else "torchrun a.py", "mpi" if by_mpi else "pytorch", 1 if by_mpi else 2)
    fault = place_fault(parse_fault("kill", f"launcher={node}@1s"), {"train": step})
    assert [victim.pid for victim in victims_of(fault, step, running)] == struck


@pytest.mark.parametrize(
    ("command", "has_one"),
    [
        ("python -m torch.distributed.run a.py", True),
        ("cd a && exec accelerate launch a.py", True),
        ("python a.py --torchrun-like", False),
        ("python not_torchrun.py", False),
        ("python a.py", False),
    ],
)
def test_a_step_that_only_the_engine_starts_has_no_launcher(command: str, has_one: bool) -> None:
    step = planned(command, "pytorch", 1)
    fault = parse_fault("kill", "launcher=1@1s")
    if has_one:
        assert place_fault(fault, {"train": step}).step == "train"
        with pytest.raises(UsageError, match="has 2 launchers, counted from 0"):
            place_fault(replace(fault, number=2), {"train": step})
    else:
        with pytest.raises(UsageError, match="no launcher of its own"):
            place_fault(fault, {"train": step})

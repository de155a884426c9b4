"""How the ranks of a step are started: one file for each distribution, each with a function ``ranks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from allranks.local.folders import StepFolder
from allranks.local.gang import Gang, RankCommand, RankExit
from allranks.local.launch import mpi, plain, pytorch, tensorflow, torchrun
from allranks.local.launch.context import LaunchContext
from allranks.local.launch.mpi import lost_ranks

LAUNCHERS: Mapping[str | None, Callable[[LaunchContext], list[RankCommand]]] = {
    None: plain.ranks,
    "pytorch": pytorch.ranks,
    "mpi": mpi.ranks,
    "tensorflow": tensorflow.ranks,
}

__all__ = ["LAUNCHERS", "LaunchContext", "first_exit", "lost_ranks"]


def first_exit(folder: StepFolder, gang: Gang) -> RankExit | None:
    """How the rank that failed first ended; of ranks that mpirun or torchrun started, the engine sees only those."""
    failure = gang.first_failure
    if failure is None:
        return None
    exits = mpi.failed_exits(folder, gang) or [failure, *(other for other in gang.exits if other is not failure)]
    return torchrun.first_exit(exits) or exits[0]

"""How the ranks of a step are started: one file for each distribution, each with a function ``ranks``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from allranks.local.folders import StepFolder
from allranks.local.gang import Gang, RankCommand, RankExit
from allranks.local.launch import mpi, plain, pytorch, tensorflow, torchrun
from allranks.local.launch.context import LaunchContext

LAUNCHERS: Mapping[str | None, Callable[[LaunchContext], list[RankCommand]]] = {
    None: plain.ranks,
    "pytorch": pytorch.ranks,
    "mpi": mpi.ranks,
    "tensorflow": tensorflow.ranks,
}

__all__ = ["LAUNCHERS", "LaunchContext", "first_exit"]


def first_exit(folder: StepFolder, gang: Gang) -> RankExit | None:
    """How the rank that failed first ended; of ranks that mpirun or torchrun started, the engine sees only those."""
    return mpi.first_exit(folder, gang) or torchrun.first_exit(gang) or gang.first_failure

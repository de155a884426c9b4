"""How the ranks of a step are started: one file for each distribution, and a line in the table."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.launch.launcher import PLAIN_LAUNCHER, LaunchContext, RankLauncher
from allranks.local.launch.mpi import MPI_LAUNCHER
from allranks.local.launch.pytorch import PYTORCH_LAUNCHER
from allranks.local.launch.tensorflow import TENSORFLOW_LAUNCHER

LAUNCHERS: Mapping[str | None, RankLauncher] = {
    None: PLAIN_LAUNCHER,
    "pytorch": PYTORCH_LAUNCHER,
    "mpi": MPI_LAUNCHER,
    "tensorflow": TENSORFLOW_LAUNCHER,
}

__all__ = ["LAUNCHERS", "LaunchContext"]

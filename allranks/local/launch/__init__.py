"""How the ranks of a step are started: one file for each distribution, and a line in the table."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.launch.launcher import LaunchContext, Launcher
from allranks.local.launch.mpi import MPI
from allranks.local.launch.plain import PLAIN
from allranks.local.launch.pytorch import PYTORCH
from allranks.local.launch.tensorflow import TENSORFLOW

LAUNCHERS: Mapping[str | None, Launcher] = {
    None: PLAIN,
    "pytorch": PYTORCH,
    "mpi": MPI,
    "tensorflow": TENSORFLOW,
}

__all__ = ["LAUNCHERS", "LaunchContext", "Launcher"]

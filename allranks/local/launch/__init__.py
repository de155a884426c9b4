"""How the ranks of a step are started: one file for each distribution, and a line in the table."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.local.launch.context import LaunchContext
from allranks.local.launch.launcher import Launcher
from allranks.local.launch.mpi import MpiLauncher
from allranks.local.launch.plain import PlainLauncher
from allranks.local.launch.pytorch import PytorchLauncher
from allranks.local.launch.tensorflow import TensorflowLauncher

LAUNCHERS: Mapping[str | None, Launcher] = {
    None: PlainLauncher(),
    "pytorch": PytorchLauncher(),
    "mpi": MpiLauncher(),
    "tensorflow": TensorflowLauncher(),
}

__all__ = ["LAUNCHERS", "LaunchContext", "Launcher"]

"""Lightning's view of a launch: nodes, ranks and the main address as ``detect`` found them, whoever started them.

    launch = launch_of_devices(world.launch, world.device)
    Trainer(num_nodes=launch.num_nodes, devices=launch.local_world_size, plugins=[LaunchedCluster(launch)])

Lightning's own guesses ask for variables that Azure ML's MPI jobs do not set, and take a PyTorch job for torchrun.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment

from shared.distributed.errors import LaunchError
from shared.distributed.launch import Launch


class LaunchedCluster(ClusterEnvironment):
    """Processes that a launcher has started already; Lightning starts none and sets no variables."""

    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self._launch = launch

    @property
    def creates_processes_externally(self) -> bool:
        """Yes: all ranks are there."""
        return True

    @property
    def main_address(self) -> str:
        """Host of rank 0."""
        return self._launch.main_address

    @property
    def main_port(self) -> int:
        """The framework's port there."""
        return self._launch.main_port

    @staticmethod
    def detect() -> bool:
        """Lightning's own detection does not choose this one: it is given to the Trainer."""
        return False

    def world_size(self) -> int:
        """Number of ranks."""
        return self._launch.world_size

    def global_rank(self) -> int:
        """This process among all ranks, from 0."""
        return self._launch.rank

    def local_rank(self) -> int:
        """This process among those of its node, from 0."""
        return self._launch.local_rank

    def node_rank(self) -> int:
        """This node among the nodes, from 0."""
        return self._launch.node_rank

    def set_world_size(self, size: int) -> None:
        """Lightning computes the size again from the Trainer's arguments; it has to be ours."""
        self._check("world size", size, self._launch.world_size)

    def set_global_rank(self, rank: int) -> None:
        """Lightning computes the rank again, from the local one, and does not use it where Open MPI permutes these."""
        launch = self._launch
        self._check("global rank", rank, launch.node_rank * launch.local_world_size + launch.local_rank)

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """See that the Trainer was told of as many nodes and devices as were started.

        Raises:
            LaunchError: if not.
        """
        self._check("num_nodes", num_nodes, self._launch.num_nodes)
        self._check("devices", num_devices, self._launch.local_world_size)

    def _check(self, what: str, theirs: int, ours: int) -> None:
        if theirs != ours:
            raise LaunchError(
                f"Lightning's {what} is {theirs}; {self._launch.launcher} started {self._launch.num_nodes} node(s) x "
                f"{self._launch.local_world_size} process(es), for which it is {ours}. Give the Trainer "
                "num_nodes=world.num_nodes and devices=world.local_world_size."
            )


def launch_of_devices(launch: Launch, device: torch.device) -> Launch:
    """The launch as Lightning has to see it, which takes local ranks for the numbers of GPUs.

    Where each rank sees a GPU of its own, which is number 0 everywhere, there is one rank on each node.
    """
    if device.type != "cuda" or torch.cuda.device_count() >= launch.local_world_size:
        return launch
    return replace(launch, local_rank=0, local_world_size=1, node_rank=launch.rank, num_nodes=launch.world_size)

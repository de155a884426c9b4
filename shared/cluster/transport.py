"""What carries the data that is measured: torch's group (NCCL or gloo), or MPI itself."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

from shared.distributed import Refusal, World


def open_transport(name: str, world: World) -> Transport:
    """The transport of this name.

    Raises:
        Refusal: mpi was asked for and cannot be had.
    """
    return _Mpi(world) if name == "mpi" else _Torch(world)


class _Torch:
    """torch.distributed's default group. A failed exchange raises RuntimeError or OSError."""

    def __init__(self, world: World) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self._world = torch, dist, world
        self.name = str(dist.get_backend())

    def _tensor(self, size: int) -> Any:
        return self._torch.zeros(size // 4, dtype=self._torch.float32, device=self._world.device)

    def _wait(self) -> None:
        if self._world.device.type == "cuda":
            self._torch.cuda.synchronize(self._world.device)

    def exchange(self, partner: int, size: int) -> None:
        """Send so many bytes to another rank and receive as many; both call this."""
        sent, received = self._tensor(size), self._tensor(size)
        dist = self._dist
        operations = [dist.P2POp(dist.isend, sent, partner), dist.P2POp(dist.irecv, received, partner)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        self._wait()

    def all_reduce(self, size: int) -> None:
        """Sum so many bytes of float32 over all ranks, and wait until it is done."""
        self._dist.all_reduce(self._tensor(size))
        self._wait()


class _Mpi:
    """MPI through mpi4py, in a step with the mpi distribution."""

    name = "mpi"

    def __init__(self, world: World) -> None:
        if "OMPI_COMM_WORLD_RANK" not in os.environ and world.world_size > 1:
            by = world.launch.launcher
            raise Refusal(f"transport mpi: {by} launched these ranks, not MPI. Give the step the distribution mpi.")
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise Refusal(f"transport mpi needs mpi4py in the environment ({error}). Use transport auto.") from error
        import numpy as np

        self._mpi, self._np, self._all = MPI, np, MPI.COMM_WORLD

    def _array(self, size: int) -> Any:
        return self._np.zeros(size // 4, dtype=self._np.float32)

    def exchange(self, partner: int, size: int) -> None:
        self._all.Sendrecv(self._array(size), dest=partner, recvbuf=self._array(size), source=partner)

    def all_reduce(self, size: int) -> None:
        self._all.Allreduce(self._mpi.IN_PLACE, self._array(size))


Transport: TypeAlias = _Torch | _Mpi

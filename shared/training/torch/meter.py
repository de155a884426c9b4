"""How a training with torch is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

import time
from contextlib import suppress

import torch
import torch.distributed as dist

from shared.distributed import World
from shared.training.core import meter
from shared.training.core.time_split import DataTimer

_LOSSES_KEPT = 256
"""Losses that are kept on the device before they are added up."""


class LossMeter(meter.LossMeter):
    """Adds up the loss on the device, so that no step waits for it."""

    def __init__(self, world: World, data: DataTimer | None = None) -> None:
        # A thread that sleeps may wait for its own GPU.
        super().__init__(world, data, counts_waits=world.device.type == "cuda")
        self._sum = torch.zeros((), dtype=torch.float64, device=world.device)
        self._losses: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor) -> None:
        """Add the loss of a pass: the mean over its rows, over the number of passes of a step."""
        self._losses.append(loss.detach())  # adding each up at once would cost a kernel in each pass
        if len(self._losses) == _LOSSES_KEPT:
            self._add_up()

    def _add_up(self) -> None:
        if self._losses:
            self._sum += torch.stack(self._losses).sum(dtype=torch.float64)
            self._losses.clear()

    def _agree(self, wish: float) -> tuple[float, float]:
        self._add_up()
        values = torch.stack([self._sum / self._world.world_size, self._sum.new_tensor(wish)])
        self._sum.zero_()
        if values.is_cuda:
            torch.cuda.current_stream().synchronize()  # as reading the values does: from here on it is for others
        began = time.perf_counter()
        if dist.is_initialized():
            if self._world.world_size > 1:
                dist.all_reduce(values)
            total, wishes = values.tolist()
        else:  # the group that carries the gradients is not torch's
            total, wishes = self._world.sum(values.tolist(), "meter")
        if self._world.world_size > 1:
            self._waited += time.perf_counter() - began
        return total, wishes

    def hardware(self) -> dict[str, float]:
        """Memory of the GPU at its peak, in MB, and how busy it is in percent if it says so; without one see above."""
        device = self._world.device
        if device.type != "cuda":
            return super().hardware()
        numbers = {"memory_mb": torch.cuda.max_memory_allocated(device) / 2**20}
        with suppress(ImportError, RuntimeError):  # it needs nvidia-ml-py, and a driver that answers
            numbers["gpu_utilization"] = float(torch.cuda.utilization(device))
        return numbers

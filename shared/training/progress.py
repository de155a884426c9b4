"""How a training is doing: loss, speed, memory, and whether it has to stop. Reading it is what waits for the device."""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import torch
import torch.distributed as dist

from shared.distributed import World


@dataclass(frozen=True, slots=True)
class Reading:
    """What happened since the reading before.

    Attributes:
        loss: mean over all rows of all ranks.
        loss_sum: sum of the steps' mean losses.
        steps: how many.
        seconds: how long they took.
        stop: some rank was asked to stop.
    """

    loss: float
    loss_sum: float
    steps: int
    seconds: float
    stop: bool


class Meter:
    """Adds up the loss on the device, so that no step waits for it, and agrees on it with the other ranks when read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sum = torch.zeros((), dtype=torch.float64, device=world.device)
        self._steps = 0
        self._since = time.perf_counter()
        self._asked_to_stop = False

    def add(self, loss: torch.Tensor) -> None:
        """Add the loss of a pass: the sum over its rows, times the number of ranks, over the global batch."""
        self._sum += loss.detach()

    def end_step(self) -> None:
        """Count a step."""
        self._steps += 1

    @property
    def unread(self) -> bool:
        """Whether there were steps since the last reading."""
        return self._steps > 0

    def read(self) -> Reading:
        """Read and start again from 0; every rank calls this at the same step."""
        values = torch.stack([self._sum / self._world.world_size, self._sum.new_tensor(float(self._asked_to_stop))])
        if self._world.world_size > 1:
            dist.all_reduce(values)
        total, stop = values.tolist()
        now = time.perf_counter()
        reading = Reading(total / max(1, self._steps), total, self._steps, now - self._since, stop > 0)
        self._sum.zero_()
        self._steps, self._since = 0, now
        return reading

    @contextmanager
    def stopping_on_sigterm(self) -> Iterator[None]:
        """Note SIGTERM instead of dying of it; the ranks agree on it at the next reading.

        A handler that saved at once would deadlock: the other ranks may be anywhere.
        """
        before = signal.signal(signal.SIGTERM, self._ask_to_stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked_to_stop = True


def hardware(device: torch.device) -> dict[str, float]:
    """Memory in MB (of the GPU at its peak, else of the process), and how busy the GPU is in percent if it says so."""
    if device.type != "cuda":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"memory_mb": peak / (2**20 if sys.platform == "darwin" else 2**10)}
    numbers = {"memory_mb": torch.cuda.max_memory_allocated(device) / 2**20}
    try:
        numbers["gpu_utilization"] = float(torch.cuda.utilization(device))
    except (ImportError, RuntimeError):  # it needs nvidia-ml-py, and a driver that answers
        pass
    return numbers

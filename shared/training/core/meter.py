"""How a training is doing: its loss, its speed, and whether it has to stop; what the frameworks have in common."""

from __future__ import annotations

import resource
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from shared.distributed import World
from shared.training.core.stopping import StopAgreement


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What happened since the reading before; `save`: rank 0 wishes a checkpoint.

    `loss` is the mean over all rows of all ranks, `loss_sum` the sum of the steps' mean losses.
    """

    loss: float
    loss_sum: float
    steps: int
    seconds: float
    save: bool


class LossMeter(ABC):
    """Counts steps, times them, and agrees with the other ranks on the loss when it is read.

    A framework's own meter adds up the loss on the device, so that no step waits for it.
    """

    def __init__(self, world: World, *, alone: bool = False) -> None:
        self._world = world
        self._steps = 0
        self._since = time.perf_counter()
        self._stop = StopAgreement(None if alone else world)

    def end_step(self) -> None:
        """Count a step."""
        self._steps += 1

    def is_last(self, step: int) -> bool:
        """Say whether to stop after this step, because some rank was asked to; the same on all ranks."""
        return self._stop.is_last(step)

    def read(self, *, save: bool = False) -> MeterReading:
        """Read and start again from 0; every rank calls this at the same step, and rank 0 says what it wishes."""
        total, wishes = self._agree(float(save and self._world.is_main))
        now = time.perf_counter()
        reading = MeterReading(total / max(1, self._steps), total, self._steps, now - self._since, wishes > 0)
        self._steps, self._since = 0, now
        return reading

    @abstractmethod
    def _agree(self, wish: float) -> tuple[float, float]:
        """Sum up the loss and a wish over the ranks, and start again from 0."""

    def hardware(self) -> dict[str, float]:
        """Memory of this process at its peak, in MB."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"memory_mb": peak / (2**20 if sys.platform == "darwin" else 2**10)}

    @contextmanager
    def stopping_on_sigterm(self) -> Iterator[None]:
        """Note SIGTERM instead of dying of it; the ranks agree after which step they stop.

        A handler that saved at once would deadlock: the other ranks may be anywhere.
        """
        before = signal.signal(signal.SIGTERM, self._ask_to_stop)
        try:
            with self._stop:
                yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop.ask()

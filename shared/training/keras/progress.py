"""How a training with TensorFlow is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from shared.distributed import WaitTimeoutError, World
from shared.training import meter


class Meter(meter.Meter):
    """Keeps the losses where they were computed, so that no step waits for them, and adds them up when it is read.

    Args:
        world: the ranks.
        patience: how long a coordinator waits for the steps that it has handed out; None: there is none, and all ranks
            speak.
    """

    def __init__(self, world: World, patience: timedelta | None = None) -> None:
        super().__init__(world)
        self._patience = patience
        self._losses: list[Any] = []

    def add(self, loss: Any) -> None:
        """Add this rank's part of a step's mean loss: the sum over its rows, over the global batch.

        A coordinator adds the promise of one, with a method `fetch`.
        """
        self._losses.append(loss)

    def _agree(self, stop: float) -> tuple[float, float]:
        if self._patience is not None:
            self._wait(self._patience)
        mine = sum(float(loss.fetch() if hasattr(loss, "fetch") else loss) for loss in self._losses)
        self._losses.clear()
        total, wish = (mine, stop) if self._patience is not None else self._world.sum([mine, stop], "meter")
        return total, wish

    def _wait(self, patience: timedelta) -> None:
        """Wait until all steps are done: to fetch one of a worker that hangs would never end."""
        until = time.monotonic() + patience.total_seconds()
        while not self._world.coordinator.done():
            if time.monotonic() > until:
                raise WaitTimeoutError(
                    f"The workers have not done {len(self._losses)} steps in {patience.total_seconds() / 60:g} minutes "
                    "(step_timeout): one of them hangs, or log_every is too much for them."
                )
            time.sleep(0.001)

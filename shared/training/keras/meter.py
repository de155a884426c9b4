"""How a training with TensorFlow is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

import time
from typing import Any

from shared.distributed import World
from shared.training.core import meter
from shared.training.core.time_split import DataTimer


class LossMeter(meter.LossMeter):
    """Keeps the losses where they were computed, so that no step waits for them, and adds them up when it is read.

    Rank 0 speaks for all where it is `alone`, because the others compute for it. Of the waits for other ranks only
    those at a report are counted: a step is one graph, which mixes them with its computing.
    """

    def __init__(self, world: World, data: DataTimer | None = None, *, alone: bool = False) -> None:
        super().__init__(world, data, counts_waits=True, alone=alone)
        self._losses: list[Any] = []
        self._coordinates = alone

    def add(self, loss: Any) -> None:
        """Add this rank's part of a step's mean loss: the sum over its rows, over the global batch.

        A coordinator adds the promise of one, with a method `fetch`.
        """
        self._losses.append(loss)

    def _agree(self, wish: float) -> tuple[float, float]:
        began = time.perf_counter()
        mine = sum(float(loss.fetch() if hasattr(loss, "fetch") else loss) for loss in self._losses)
        self._losses.clear()
        if not self._coordinates:  # or else it has waited for the workers' steps
            began = time.perf_counter()
        total, wishes = (mine, wish) if self._alone else self._world.sum([mine, wish], "meter")
        self._waited += time.perf_counter() - began
        return total, wishes

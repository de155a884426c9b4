"""How a training with TensorFlow is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

from typing import Any

from shared.distributed import World
from shared.training.core import meter


class LossMeter(meter.LossMeter):
    """Keeps the losses where they were computed, so that no step waits for them, and adds them up when it is read.

    Rank 0 speaks for all where it is `alone`, because the others compute for it.
    """

    def __init__(self, world: World, *, alone: bool = False) -> None:
        super().__init__(world, alone=alone)
        self._alone = alone
        self._losses: list[Any] = []

    def add(self, loss: Any) -> None:
        """Add this rank's part of a step's mean loss: the sum over its rows, over the global batch.

        A coordinator adds the promise of one, with a method `fetch`.
        """
        self._losses.append(loss)

    def _agree(self, wish: float) -> tuple[float, float]:
        mine = sum(float(loss.fetch() if hasattr(loss, "fetch") else loss) for loss in self._losses)
        self._losses.clear()
        total, wishes = (mine, wish) if self._alone else self._world.sum([mine, wish], "meter")
        return total, wishes

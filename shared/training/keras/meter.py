"""How a training with TensorFlow is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

import tensorflow as tf

from shared.distributed import World
from shared.training.core import meter
from shared.training.core.time_split import DataTimer

_TIMED_EVERY: Final = 10
"""Steps of which one is timed."""


class LossMeter(meter.LossMeter):
    """Keeps the losses where they were computed, so that no step waits for them, and adds them up when it is read.

    Rank 0 speaks for all where it is `alone`, because the others compute for it.
    """

    def __init__(self, world: World, data: DataTimer | None = None, *, alone: bool = False) -> None:
        super().__init__(world, data, counts_waits=True, alone=alone)
        self._losses: list[Any] = []
        self._yes, self._no, self._timed = tf.constant(value=True), tf.constant(value=False), False
        self._waits: list[Any] = []
        self._wait_each, self._coordinates = 0.0, alone

    def timing(self) -> tf.Tensor:
        """Say, in a tensor, whether it is to be measured how long this rank waits in the step to come.

        One step in some tells of all, and looks at a clock from within the graph, which costs 50 us.
        """
        self._timed = self._steps % _TIMED_EVERY == _TIMED_EVERY // 2
        return self._yes if self._timed else self._no

    def add(self, loss: Any, waited: Any = None) -> None:
        """Add this rank's part of a step's mean loss: the sum over its rows, over the global batch.

        A coordinator adds the promise of one, with a method `fetch`. `waited` are the seconds in which this rank waited
        for others, of which those of a step that was timed are kept.
        """
        self._losses.append(loss)
        if self._timed:
            self._waits.append(waited)

    def _agree(self, wish: float) -> tuple[float, float]:
        began = time.perf_counter()
        mine = sum(float(loss.fetch() if hasattr(loss, "fetch") else loss) for loss in self._losses)
        if not self._coordinates:  # or else it has waited for the workers' steps
            if self._waits:
                self._wait_each = statistics.fmean(map(float, self._waits))
            self._waited += self._wait_each * len(self._losses)
            began = time.perf_counter()
        self._losses.clear()
        self._waits.clear()
        total, wishes = (mine, wish) if self._alone else self._world.sum([mine, wish], "meter")
        self._waited += time.perf_counter() - began
        return total, wishes

"""How a training with TensorFlow is doing. Reading the meter is what waits for the device."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from shared.distributed import World
from shared.training.core import meter
from shared.training.core.time_split import DataTimer

_TIMED_EVERY: Final = 50
"""Steps of which one is timed, where a step that is timed has a graph of its own: it takes 0.8 ms more."""
_FIRST_TIMED: Final = 5
_MOST_VARIABLES: Final = 24
"""Of a model whose step is traced twice: for 6 that takes 0.1 s, for the 161 of resnet50 7 s."""


class LossMeter(meter.LossMeter):
    """Keeps the losses where they were computed, so that no step waits for them, and adds them up when it is read.

    Rank 0 speaks for all where it is `alone`, because the others compute for it. `variables`, of the model, are as
    many as its step takes time to trace.
    """

    def __init__(self, world: World, data: DataTimer | None = None, *, variables: int = 0, alone: bool = False) -> None:
        super().__init__(world, data, counts_waits=True, alone=alone)
        self._losses: list[Any] = []
        self._timed, self._times_all, self._begun = False, variables > _MOST_VARIABLES, 0
        self._waits: list[Any] = []
        self._wait_each, self._coordinates = 0.0, alone

    def timing(self) -> bool:
        """Whether it is to be measured how long this rank waits in the step to come: one in some tells of all.

        Not a tensor: a step has a graph for each answer. That of a large model, in whose steps a look at the clock is
        nothing, has only one, and is always timed.
        """
        self._begun += 1
        self._timed = self._times_all or self._begun % _TIMED_EVERY == _FIRST_TIMED
        return self._timed

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

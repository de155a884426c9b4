"""Seconds of the processor and of the wall from the end of one step to that of another, whoever makes the steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.training.core.run import TrainingRun


@dataclass
class StepClock:
    """Measures the steps after the first `warm_up`, `steps` of them; `end_step` is called at the end of each."""

    warm_up: int
    steps: int
    processor: float = 0.0
    wall: float = 0.0
    made: int = 0

    def end_step(self) -> None:
        """Count a step; at two of them look at the clocks."""
        self.made += 1
        if self.made in (self.warm_up, self.warm_up + self.steps):
            _wait_for_gpu()
        if self.made == self.warm_up:
            self.processor, self.wall = -time.process_time(), -time.perf_counter()
        elif self.made == self.warm_up + self.steps:
            self.processor += time.process_time()
            self.wall += time.perf_counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the steps of a trainer of ours, whose bookkeeping is told of each."""
        end_step = TrainingRun.end_step

        def counted(run: TrainingRun) -> bool:
            stop = end_step(run)
            self.end_step()
            return stop

        TrainingRun.end_step = counted  # type: ignore[method-assign]
        try:
            yield
        finally:
            TrainingRun.end_step = end_step  # type: ignore[method-assign]


def _wait_for_gpu() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()

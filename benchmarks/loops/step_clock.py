"""Seconds of the processor and of the wall from the end of one step to that of another, whoever makes the steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from shared.training.core.run import TrainingRun


@dataclass
class StepClock:
    """Measures the steps after the first `warm_up`, `steps` of them; `end_step` is called at the end of each.

    `look` tells how many seconds of the processor have been used; by default this process's.
    """

    warm_up: int
    steps: int
    look: Callable[[], float] = time.process_time
    processor: float = 0.0
    wall: float = 0.0
    made: int = 0

    def end_step(self) -> None:
        """Count a step; at two of them look at the clocks."""
        self.made += 1
        if self.made in (self.warm_up, self.warm_up + self.steps):
            _wait_for_gpu()
        if self.made == self.warm_up:
            self.processor, self.wall = -self.look(), -time.perf_counter()
        elif self.made == self.warm_up + self.steps:
            self.processor += self.look()
            self.wall += time.perf_counter()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the steps of a trainer of ours, whose bookkeeping is told of each."""
        end_step = TrainingRun.end_step

        def counted(run: TrainingRun) -> bool:
            stop = end_step(run)
            self.end_step()
            return stop

        TrainingRun.end_step = counted  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            TrainingRun.end_step = end_step  # type: ignore[method-assign]


def siblings_time() -> float:
    """Seconds of the processor that all processes with this one's parent have used, to a hundredth."""
    times = [process.cpu_times() for process in psutil.Process().parent().children()]  # type: ignore[union-attr]
    return sum(each.user + each.system for each in times)


def _wait_for_gpu() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()

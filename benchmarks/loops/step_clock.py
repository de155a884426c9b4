"""Seconds of the processor and of the wall from the end of one step to that of another, whoever makes the steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from shared.training.core.run import TrainingRun

BLOCK = 10
"""Steps, of which one reports."""


@dataclass
class StepClock:
    """Measures blocks of steps after the first `warm_up`, `steps` in all; `end_step` is called at the end of each.

    Before each block `rest` is called, in whose time nothing is measured, and once after the first step. `look` tells
    how many seconds of the processor have been used; by default this process's.
    """

    warm_up: int
    steps: int
    rest: Callable[[], None]
    look: Callable[[], float] = time.process_time
    processor: float = 0.0
    wall: float = 0.0
    made: int = 0

    def __post_init__(self) -> None:
        assert self.steps % BLOCK == 0, self.steps

    def end_step(self) -> None:
        """Count a step; at the end of a block look at the clocks, and rest before the next."""
        self.made += 1
        if self.made == 1:
            self.rest()  # TensorFlow forgets what it has compiled when the other sets its seed
        past = self.made - self.warm_up
        if not 0 <= past <= self.steps or past % BLOCK:
            return
        _wait_for_gpu()
        if past:
            self.processor += self.look()
            self.wall += time.perf_counter()
        if past < self.steps:
            self.rest()
            self.processor -= self.look()
            self.wall -= time.perf_counter()

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
    """Seconds of the processor that all processes with this one's parent have used."""
    processes = psutil.Process().parent().children()  # type: ignore[union-attr]
    # Linux' clock of another process, as clock_getcpuclockid(3) makes its number.
    return sum(time.clock_gettime(~process.pid << 3 | 2) for process in processes)


def _wait_for_gpu() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()

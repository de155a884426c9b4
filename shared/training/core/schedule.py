"""The learning rate over a training, as arithmetic that needs no framework."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate as a function of the step alone, so that nothing of it has to be saved.

    Attributes:
        kind: constant, cosine or linear; the last two end at 0.
        peak: highest learning rate.
        steps: of the whole training.
        warmup_steps: during which it rises from 0.
    """

    kind: str
    peak: float
    steps: int
    warmup_steps: int

    @classmethod
    def over(cls, steps: int, args: argparse.Namespace) -> Schedule:
        """Make the schedule of the arguments for a whole training of `steps`."""
        return cls(args.schedule, args.learning_rate, steps, round(steps * args.warmup_fraction))

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / (self.warmup_steps + 1)
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        if self.kind == "cosine":
            return self.peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return self.peak if self.kind == "constant" else self.peak * max(0.0, 1 - done)

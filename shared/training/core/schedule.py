"""The learning rate over a training, as arithmetic that needs no framework."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shared.settings.training import ScheduleSettings


@dataclass(frozen=True, slots=True)
class LearningSchedule:
    """The learning rate as a function of the step alone, so that nothing of it has to be saved.

    It rises from 0 to its peak in `warmup_steps`; its `kind` is constant, or cosine or linear, which end at 0.
    """

    kind: str
    peak: float
    steps: int
    warmup_steps: int

    @classmethod
    def for_steps(cls, steps: int, peak: float, settings: ScheduleSettings) -> LearningSchedule:
        """Make the schedule of a whole training of `steps`."""
        return cls(settings.schedule, peak, steps, round(steps * settings.warmup_fraction))

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * (step + 1) / (self.warmup_steps + 1)
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        if self.kind == "cosine":
            return self.peak * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return self.peak if self.kind == "constant" else self.peak * max(0.0, 1 - done)

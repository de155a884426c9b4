"""The learning rate as the configuration file has it, with DeepSpeed's own classes; without, as all trainers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from shared.settings.training import ScheduleSettings
from shared.training.core.schedule import LearningSchedule
from shared.training.deepspeed.config_file import ConfigFile, is_set, read_section
from shared.training.deepspeed.config_keys import FILE_SCHEDULERS


@dataclass(frozen=True, slots=True)
class FileSchedule(LearningSchedule):
    """A scheduler of DeepSpeed as a function of the step alone, so that nothing of it has to be saved.

    `first` is the learning rate of the first step.
    """

    scheduler: Any
    first: float

    @classmethod
    def from_section(cls, kind: str, params: dict[str, object], peak: float, steps: int) -> FileSchedule:
        """Make the scheduler of a class's name for a training of `steps`; `peak` is the optimizer's learning rate."""
        scheduler = FILE_SCHEDULERS[kind](torch.optim.SGD([torch.zeros(1)], peak), **params)
        return cls(kind, peak, steps, scheduler.warmup_num_steps, scheduler, float(scheduler.get_last_lr()[0]))

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0; DeepSpeed moves its schedulers on after each step."""
        self.scheduler.last_batch_iteration = step - 1
        return float(self.scheduler.get_lr()[0]) if step else self.first


def make_schedule(steps: int, peak: float, settings: ScheduleSettings, file: ConfigFile) -> LearningSchedule:
    """Make the schedule of the file, if it has one, else that of the settings.

    Values that the file leaves to the component ("auto") are those of the settings; `peak` is the learning rate.
    """
    ours, found = LearningSchedule.for_steps(steps, peak, settings), read_section(file, "scheduler")
    kind, params = found.get("type"), read_section(found, "params")
    if not is_set(kind):
        return ours
    auto = {
        "warmup_min_lr": 0.0,
        "warmup_max_lr": peak,
        "warmup_num_steps": max(1, ours.warmup_steps),
        "total_num_steps": steps,
    }
    filled = {
        name: value if is_set(value) else auto[name] for name, value in params.items() if is_set(value) or name in auto
    }
    if kind != "WarmupLR":
        filled.setdefault("total_num_steps", steps)
    return FileSchedule.from_section(str(kind), filled, peak, steps)

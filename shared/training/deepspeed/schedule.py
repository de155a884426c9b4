"""The learning rate as the configuration file has it, with DeepSpeed's own classes; without, as all trainers do."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import torch

from shared.training.core.schedule import Schedule
from shared.training.deepspeed.file import File, given, section
from shared.training.deepspeed.keys import SCHEDULERS


@dataclass(frozen=True, slots=True)
class FileSchedule(Schedule):
    """A scheduler of DeepSpeed as a function of the step alone, so that nothing of it has to be saved.

    Attributes:
        scheduler: DeepSpeed's.
        first: learning rate of the first step.
    """

    scheduler: Any
    first: float

    @classmethod
    def of(cls, kind: str, params: dict[str, Any], peak: float, steps: int) -> FileSchedule:
        """Make the scheduler of a class's name for a training of `steps`; `peak` is the optimizer's learning rate."""
        scheduler = SCHEDULERS[kind](torch.optim.SGD([torch.zeros(1)], peak), **params)
        return cls(kind, peak, steps, scheduler.warmup_num_steps, scheduler, float(scheduler.get_last_lr()[0]))

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0; DeepSpeed moves its schedulers on after each step."""
        self.scheduler.last_batch_iteration = step - 1
        return float(self.scheduler.get_lr()[0]) if step else self.first


def schedule_over(steps: int, args: argparse.Namespace, file: File) -> Schedule:
    """The schedule of the file, if it has one, else that of the arguments.

    Values that the file leaves to the component ("auto") are those of the arguments.
    """
    ours = Schedule.over(steps, args)
    found = section(file, "scheduler")
    if not given(found.get("type")):
        return ours
    auto = {
        "warmup_min_lr": 0.0,
        "warmup_max_lr": args.learning_rate,
        "warmup_num_steps": max(1, ours.warmup_steps),
        "total_num_steps": steps,
    }
    params = section(found, "params")
    filled = {
        name: value if given(value) else auto[name] for name, value in params.items() if given(value) or name in auto
    }
    if found["type"] != "WarmupLR":
        filled.setdefault("total_num_steps", steps)
    return FileSchedule.of(found["type"], filled, args.learning_rate, steps)

"""What the hand-written loops have in common: rows in memory, in an order of their own, and the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from shared.data import Dataset
from shared.distributed import World
from shared.settings.trainer import TrainerSettings
from shared.training.core.schedule import LearningSchedule

Rows = tuple[torch.Tensor, ...]


def held_rows(data: Dataset) -> Rows:
    """All rows of the train split."""
    split = data.split("train")
    arrays = split.take(np.arange(split.rows))
    x = torch.from_numpy(arrays["x"])
    return (x, torch.from_numpy(arrays["y"])) if "y" in arrays else (x.to(torch.int32),)


def mean_and_deviation(data: Dataset) -> tuple[float, float]:
    """Of pictures with one channel."""
    assert data.index.statistics is not None
    return data.index.statistics.mean[0], data.index.statistics.std[0]


def batches(held: Rows, batch_size: int, world: World, seed: int = 0) -> Iterator[Rows]:
    """This rank's part of each batch of an epoch, on its device."""
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(held[0])))
    part = batch_size // world.world_size
    for start in range(world.rank * part, len(order) - part + 1, batch_size):
        chosen = order[start : start + part]
        yield tuple(_copied(tensor[chosen], world) for tensor in held)


def _copied(rows: torch.Tensor, world: World) -> torch.Tensor:
    """From page-locked memory, the process need not wait for the copy."""
    return rows.pin_memory().to(world.device, non_blocking=True) if world.device.type == "cuda" else rows


def halves(settings: TrainerSettings, world: World) -> torch.autocast:
    """The forward pass in the settings' precision."""
    return torch.autocast(world.device.type, torch.bfloat16, enabled=settings.precision.precision == "bf16")


def adamw(module: nn.Module, settings: TrainerSettings) -> torch.optim.Optimizer:
    """AdamW as our settings have it, which decays matrices alone."""
    given = settings.optimizer
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    decayed = [one for one in module.parameters() if one.ndim > 1 and id(one) not in embeddings]
    others = [one for one in module.parameters() if one.ndim < 2 or id(one) in embeddings]
    groups = [{"params": others, "weight_decay": 0.0}, {"params": decayed, "weight_decay": given.suited_decay}]
    return torch.optim.AdamW(groups, given.learning_rate, (given.momentum, given.beta2), fused=True)


def rate_of(settings: TrainerSettings, steps: int) -> LearningSchedule:
    """The learning rate of each step: a formula, the same on both sides."""
    return LearningSchedule.for_steps(steps, settings.optimizer.learning_rate, settings.schedule)


class MeanLoss:
    """The mean loss over all ranks every few steps, as people report it."""

    def __init__(self, every: int, world: World) -> None:
        self._every, self._world, self._steps = every, world, 0
        self._sum = torch.zeros((), device=world.device)

    def add(self, loss: torch.Tensor) -> None:
        """Add the loss of a step; wait for it where it is due."""
        self._sum += loss.detach()
        self._steps += 1
        if self._steps % self._every == 0:
            dist.all_reduce(self._sum)
            self._sum.item()
            self._sum.zero_()

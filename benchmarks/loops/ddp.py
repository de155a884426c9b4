"""train_ddp's counterpart: DistributedDataParallel in a loop that somebody writes who needs it once."""

from __future__ import annotations

import torch
from loops.hand_parts import MeanLoss, adamw, batches, halves, held_rows, mean_and_deviation, rate_of
from loops.step_clock import StepClock
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from shared.data import Dataset
from shared.distributed import World
from shared.models import build_network
from shared.settings.trainer import RowsTrainerSettings


def train_by_hand(settings: RowsTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    held, (mean, std) = held_rows(data), mean_and_deviation(data)
    shape = held[0].shape[1:]
    torch.manual_seed(settings.seed)
    net = build_network(settings.network.architecture, tuple(shape), 10, None).to(world.device)
    model: nn.Module = net
    if world.world_size > 1:
        model = DistributedDataParallel(net, gradient_as_bucket_view=True)
    size = settings.batch.batch_size
    optimizer, rate = adamw(net, settings), rate_of(settings, len(held[0]) // size)
    losses = MeanLoss(settings.reports.log_every, world)
    for step, (x, y) in enumerate(batches(held, size, world)):
        rows = ((x - mean) / std).movedim(-1, 1)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        with halves(settings, world):
            loss = functional.cross_entropy(model(rows), y, label_smoothing=settings.optimizer.label_smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), settings.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.add(loss)
        clock.end_step()

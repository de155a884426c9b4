"""train_horovod's counterpart: Horovod's optimizer in a loop that somebody writes who needs it once."""

from __future__ import annotations

import horovod.torch as hvd
import torch
from loops.hand_parts import adamw, batches, held_rows, mean_and_deviation, rate_of
from loops.step_clock import StepClock
from torch import nn
from torch.nn import functional

from shared.data import Dataset
from shared.distributed import World
from shared.models import build_network
from shared.settings.trainer import RowsTrainerSettings


def train_by_hand(settings: RowsTrainerSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    held, (mean, std) = held_rows(data), mean_and_deviation(data)
    shape = held[0].shape[1:]
    torch.manual_seed(settings.seed)
    net = build_network(settings.network.architecture, tuple(shape), 10, None)
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    size, losses = settings.batch.batch_size, torch.zeros(())
    optimizer = hvd.DistributedOptimizer(adamw(net, settings), named_parameters=net.named_parameters())
    rate = rate_of(settings, len(held[0]) // size)
    for step, (x, y) in enumerate(batches(held, size, world)):
        rows = ((x - mean) / std).movedim(-1, 1)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = functional.cross_entropy(net(rows), y, label_smoothing=settings.optimizer.label_smoothing)
        loss.backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), settings.optimizer.clip_norm)
        with optimizer.skip_synchronize():
            optimizer.step()
        optimizer.zero_grad()
        losses += loss.detach()
        if (step + 1) % settings.reports.log_every == 0:
            hvd.allreduce(losses, name="loss").item()
            losses.zero_()
        clock.end_step()

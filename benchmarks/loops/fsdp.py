"""train_fsdp's counterpart: FSDP2 in a loop that somebody writes who needs it once."""

from __future__ import annotations

from typing import Any

import torch
from loops.hand_parts import MeanLoss, adamw, batches, held_rows, rate_of
from loops.step_clock import StepClock
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional

from shared.data import Dataset
from shared.distributed import World
from shared.models import DecoderModel
from shared.training.torch.start import decoder_settings


def train_by_hand(settings: Any, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch; `settings` are those of train_fsdp."""
    (tokens,), size = held_rows(data), settings.batch.batch_size
    assert data.index.text is not None
    module = DecoderModel(decoder_settings(settings.decoder, data.index.text)).to_empty(device=world.device)
    torch.manual_seed(settings.seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.02)
    halves = torch.bfloat16 if settings.precision.precision == "bf16" else None
    policy = MixedPrecisionPolicy(param_dtype=halves)
    for block in module.blocks.values():
        fully_shard(block, mp_policy=policy)
    fully_shard(module, mp_policy=policy)
    optimizer, rate = adamw(module, settings), rate_of(settings, len(tokens) // size)
    losses = MeanLoss(settings.reports.log_every, world)
    for step, (rows,) in enumerate(batches((tokens,), size, world)):
        longs = rows.long()
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        loss = functional.cross_entropy(module(longs[:, :-1]).flatten(0, 1), longs[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), settings.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.add(loss)
        clock.end_step()

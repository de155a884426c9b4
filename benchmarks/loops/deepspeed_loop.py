"""train_deepspeed's counterpart: DeepSpeed's engine, given a configuration as its tutorial has it."""

from __future__ import annotations

import deepspeed
import torch
from loops.hand_parts import MeanLoss, adamw, batches, held_rows, mean_and_deviation, rate_of
from loops.step_clock import StepClock
from torch.nn import functional

from shared.data import Dataset
from shared.distributed import World
from shared.models import build_network
from shared.settings.deepspeed import DeepSpeedSettings


def train_by_hand(settings: DeepSpeedSettings, data: Dataset, world: World, clock: StepClock) -> None:
    """Train for an epoch."""
    held, (mean, std) = held_rows(data), mean_and_deviation(data)
    torch.manual_seed(settings.seed)
    net = build_network(settings.network.architecture, tuple(held[0].shape[1:]), 10, None).to(world.device)
    size = settings.batch.batch_size
    config = {
        "train_batch_size": size,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.optimizer.clip_norm,
        "zero_optimization": {"stage": settings.zero.zero_stage},
        "zero_allow_untested_optimizer": True,
    }
    engine, optimizer, _, _ = deepspeed.initialize(model=net, optimizer=adamw(net, settings), config=config)
    rate, losses = rate_of(settings, len(held[0]) // size), MeanLoss(settings.reports.log_every, world)
    for step, (x, y) in enumerate(batches(held, size, world)):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        rows = ((x - mean) / std).movedim(-1, 1)
        loss = functional.cross_entropy(engine(rows), y, label_smoothing=settings.optimizer.label_smoothing)
        engine.backward(loss)
        engine.step()
        losses.add(loss)
        clock.end_step()
    engine.destroy()

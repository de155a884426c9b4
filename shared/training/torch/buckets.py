"""DistributedDataParallel's gradient buckets, settled before the first step."""

from __future__ import annotations

import torch
from torch import nn

from shared.training.torch.optimization import TrainingPrecision
from shared.training.torch.state import random_state, set_random_state


def settle_buckets(model: nn.Module, module: nn.Module, rows: torch.Tensor, precision: TrainingPrecision) -> None:
    """Let DDP find its final gradient buckets before the first step, without changing anything else.

    DDP sorts its buckets after its first backward pass. From 3 ranks on another order of summation is other bits, and a
    run that goes on from a checkpoint would not end with the weights of one that was never interrupted.

    Args:
        model: the module wrapped by DDP; the module itself where there is nothing to settle.
        module: whose gradients and buffers are put back.
        rows: as many as a pass has, on the device.
        precision: of the training.
    """
    if model is module:
        return
    buffers, generators = [(buffer, buffer.clone()) for buffer in module.buffers()], random_state()
    for _ in range(2):
        with precision.autocast():
            nothing = model(rows).sum() * 0
        nothing.backward()
    set_random_state(generators)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    module.zero_grad()

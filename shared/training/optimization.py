"""Optimizer, learning rate, precision, activation checkpointing: what every trainer sets in the same way."""

from __future__ import annotations

import argparse
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from shared.distributed import Refusal

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(module: nn.Module, args: argparse.Namespace) -> torch.optim.Optimizer:
    """Make the optimizer of the arguments, fused, over the parameters that train; vectors (biases, norms) do not decay.

    Raises:
        Refusal: if nothing trains.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": args.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise Refusal("The model has no parameter that trains: none has requires_grad.")
    if args.optimizer == "sgd":
        nesterov = args.momentum > 0
        return torch.optim.SGD(groups, args.learning_rate, args.momentum, nesterov=nesterov, fused=True)
    kind = torch.optim.AdamW if args.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, args.learning_rate, betas=(args.momentum, 0.999), fused=True)


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


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = value


class Precision:
    """Arithmetic of a training: autocast, and the loss scaling that fp16 needs.

    Raises:
        Refusal: if the device cannot do it.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name == "fp16" and device.type == "cpu":
            raise Refusal("precision fp16 needs a GPU; on this machine choose bf16 or fp32.")
        if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise Refusal(f"precision bf16 is not in {torch.cuda.get_device_name(device)}; choose fp16 or fp32.")
        self._device_type, self._autocast = device.type, AUTOCAST.get(name)
        self.dtype = torch.float64 if name == "fp64" else torch.float32
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> AbstractContextManager[object]:
        """Context of the forward pass."""
        return torch.autocast(self._device_type, self._autocast) if self._autocast else nullcontext()

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        """Clip the gradients (0: not), make one optimizer step, and clear them."""
        if clip_norm > 0:
            self.scaler.unscale_(optimizer)
            trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            nn.utils.clip_grad_norm_(trained, clip_norm)
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()


def checkpoint_activations(net: nn.Module) -> None:
    """Let each of `net.blocks` (for a Sequential: each layer) compute its activations again in the backward pass.

    Raises:
        Refusal: if the network does not say which its blocks are.
    """
    blocks = net if isinstance(net, nn.Sequential) else getattr(net, "blocks", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList):
        raise Refusal(
            f"gradient_checkpointing needs to know the blocks of {type(net).__name__}: "
            "give it an attribute `blocks`, a torch.nn.ModuleList or Sequential."
        )
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)

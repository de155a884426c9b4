"""Optimizer, learning rate, precision, activation checkpointing: what every trainer sets in the same way."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from shared.distributed import Refusal
from shared.settings.training import OptimizerSettings

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_optimizer(module: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Make the optimizer, fused, over the parameters that train; see `parameter_groups`."""
    groups = parameter_groups(module, settings.suited_decay)
    rate, momentum = settings.learning_rate, settings.momentum
    if settings.optimizer == "sgd":
        nesterov = momentum > 0
        return torch.optim.SGD(groups, rate, momentum, nesterov=nesterov, fused=True)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, rate, betas=(momentum, settings.beta2), fused=True)


def parameter_groups(module: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Sort the parameters that train by whether they decay; vectors (biases, norms) and embeddings do not.

    To decay an embedding would only forget the tokens that are rarely seen.

    Raises:
        Refusal: if nothing trains.
    """
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        raise Refusal("The model has no parameter that trains: none has requires_grad.")
    embeddings = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    decays = [decay > 0 and parameter.ndim > 1 and id(parameter) not in embeddings for parameter in trained]
    return [
        {"params": [p for p, yes in zip(trained, decays, strict=True) if yes is kind], "weight_decay": kind * decay}
        for kind in sorted(set(decays))
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = value


class TrainingPrecision:
    """Arithmetic of a training: autocast, and the loss scaling that fp16 needs.

    Raises:
        Refusal: if the device cannot do it.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        if name == "fp16" and device.type == "cpu":
            raise Refusal("precision fp16 needs a GPU; on this machine choose bf16 or fp32.")
        if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise Refusal(f"precision bf16 is not in {torch.cuda.get_device_name(device)}; choose fp16 or fp32.")
        self._device_type, self._autocast = device.type, _AUTOCAST.get(name)
        self.dtype = torch.float64 if name == "fp64" else torch.float32
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    @property
    def compute(self) -> torch.dtype:
        """Type that the forward and backward pass compute in."""
        return self._autocast or self.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Context of the forward pass."""
        return torch.autocast(self._device_type, self._autocast) if self._autocast else nullcontext()

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        """Clip the gradients (0: not), make one optimizer step, and clear them."""
        if clip_norm > 0:
            self.scaler.unscale_(optimizer)
            trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            nn.utils.clip_grad_norm_(trained, clip_norm)
        if self.scaler.is_enabled():
            self.scaler.step(optimizer)
            self.scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()


def checkpoint_activations(net: nn.Module) -> None:
    """Let each of `net.blocks` (for a Sequential: each layer) compute its activations again in the backward pass.

    Raises:
        Refusal: if the network does not say which its blocks are.
    """
    blocks = net if isinstance(net, nn.Sequential) else getattr(net, "blocks", None)
    if not isinstance(blocks, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        raise Refusal(
            f"gradient_checkpointing needs to know the blocks of {type(net).__name__}: "
            "give it an attribute `blocks`, a torch.nn.ModuleList or Sequential."
        )
    for block in blocks.children():
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)

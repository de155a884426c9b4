"""Clipping of gradients that lie in parts on all ranks."""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from shared.distributed import World
from shared.training.fsdp.pieces import copies_of, local_part, sharded_parameters


def clip_gradients(module: nn.Module, clip_norm: float, world: World) -> None:
    """Scale all gradients down so that their norm over all ranks is `clip_norm` at most (0: not), as torch does.

    One sum over all ranks, whatever kinds of parallelism there are: what several ranks hold counts once.
    """
    if clip_norm == 0:
        return
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    gradients: list[torch.Tensor] = []
    for _, parameter in sharded_parameters(module):
        if parameter.grad is not None:
            local = local_part(cast("DTensor", parameter.grad))
            gradients.append(local)
            square = torch.linalg.vector_norm(local, dtype=torch.float32 if local.element_size() < 8 else None) ** 2
            total += square.double().to(world.device) / copies_of(parameter)
    dist.all_reduce(total)
    factor = (clip_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device, gradient.dtype))

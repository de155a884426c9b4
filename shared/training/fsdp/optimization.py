"""Clipping of gradients that lie in parts on all ranks."""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from shared.distributed import World
from shared.training.fsdp.pieces import copies_of, sharded_parameters


@torch.no_grad()
def clip_gradients(module: nn.Module, clip_norm: float, world: World) -> None:
    """Scale all gradients down so that their norm over all ranks is `clip_norm` at most (0: not), as torch does.

    One sum over all ranks, whatever kinds of parallelism there are: what several ranks hold counts once.
    """
    if clip_norm == 0:
        return
    alike: dict[int, list[torch.Tensor]] = {}  # by how many ranks hold the same
    for _, parameter in sharded_parameters(module):
        if parameter.grad is not None:
            # Without gradients it is the memory itself; to detach it first would cost a dispatch of DTensor's for each.
            alike.setdefault(copies_of(parameter), []).append(cast("DTensor", parameter.grad).to_local())
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for copies, gradients in alike.items():
        total += nn.utils.get_total_norm(gradients).to(world.device, torch.float64) ** 2 / copies
    dist.all_reduce(total)
    factor = (clip_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
    for gradients in alike.values():
        torch._foreach_mul_(gradients, factor.to(gradients[0].device, gradients[0].dtype))  # as torch's own clipping

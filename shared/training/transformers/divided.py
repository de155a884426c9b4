"""A model of transformers in parts on all ranks, by PyTorch's `fully_shard`, on CPUs and GPUs alike.

The Trainer would leave it to Accelerate, which divides nothing on CPUs and does not say so (1.15 takes DDP instead),
and which has the whole model in each process first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from transformers import PreTrainedModel

from shared.distributed import World


def divide_model(net: PreTrainedModel, world: World, dtype: torch.dtype) -> None:
    """Divide a model over the ranks, in place, layer by layer; `dtype` is what its layers compute in."""
    mesh = init_device_mesh(world.device.type, (world.world_size,))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    layers = set(net._no_split_modules or ())  # noqa: SLF001  # what its authors say is a layer
    for part in [part for part in net.modules() if type(part).__name__ in layers]:
        fully_shard(part, mesh=mesh, mp_policy=policy)
    fully_shard(net, mesh=mesh, mp_policy=policy)


def reshard_model(net: nn.Module) -> None:
    """Give up what ranks have of each other's parts: what no backward pass follows stays whole otherwise."""
    for part in net.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


class DividedModel(nn.Module):
    """A divided model that computes in mixed precision; the Trainer takes a model that is wrapped as it is."""

    def __init__(self, net: nn.Module, device_type: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.net, self._device_type, self._dtype = net, device_type, dtype

    def forward(self, **inputs: Any) -> Any:
        """Give what the model gives."""
        with torch.autocast(self._device_type, self._dtype, enabled=self._dtype != torch.float32):
            return self.net(**inputs)

"""Batch normalization over several ranks: one model's statistics in all of them, or those of the whole global batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from shared.distributed import World

TensorSum = Callable[[torch.Tensor], torch.Tensor]
"""Gives the sum of a tensor over all ranks, as a new one."""


def share_statistics(module: nn.Module, world: World) -> None:
    """Give all ranks the statistics of rank 0, which are those that are saved; every rank calls this.

    Each rank's batch normalization has seen its own rows only. What moves are the buffers of floating point that a
    saved model has: others may rightly differ, such as what a rank has counted or keeps for itself.
    """
    if world.world_size == 1:
        return
    saved = module.state_dict().keys()
    shared = [(name, buffer) for name, buffer in module.named_buffers() if name in saved and buffer.is_floating_point()]
    if dist.is_initialized():
        for _, buffer in shared:
            dist.broadcast(buffer, 0)
    else:
        import horovod.torch as hvd

        hvd.broadcast_parameters(shared, root_rank=0)


def synchronise_batch_norm(net: nn.Module, world: World) -> nn.Module:
    """Let the batch normalization of a network see the rows of all ranks.

    Returns:
        the network, with other layers in the place of its own; such a layer itself, if that is all it was.
    """
    if world.world_size == 1:
        return net
    if not any(isinstance(part, _BatchNorm) for part in net.modules()):
        world.note("note: sync_batch_norm has no effect here: the model has no batch normalization")
    if dist.is_initialized() and world.device.type == "cuda":
        found: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(net)
        return found
    return _replaced(net, _add_with_torch if dist.is_initialized() else _add_with_horovod)


class SynchronisedBatchNorm(_BatchNorm):
    """Batch normalization over the rows of all ranks, on any device; torch's own refuses CPUs, and so does Horovod's.

    It takes over the settings, weights and statistics of `like`.
    """

    def __init__(self, like: _BatchNorm, add: TensorSum) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats)
        for name, value in (*like.named_parameters(), *like.named_buffers()):
            setattr(self, name, value)
        self.training, self._add = like.training, add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise (N, C, ...) by the mean and variance of each of the C channels over all ranks' rows."""
        if not self.training:
            return super().forward(x)
        values = x if x.dtype == torch.float64 else x.float()
        others = [dim for dim in range(x.ndim) if dim != 1]
        shape = (1, -1, *(1 for _ in others[1:]))
        sums = _sum(torch.cat([values.sum(others), values.new_tensor([values.numel() / x.shape[1]])]), self._add)
        mean, count = sums[:-1] / sums[-1], sums[-1].detach()
        centred = values - mean.view(shape)
        # A second exchange, since E[x^2] - E[x]^2 would lose the digits of a mean that is far from 0.
        squares = _sum(centred.square().sum(others), self._add)
        self._update(mean.detach(), squares.detach() / (count - 1))
        outputs = centred * torch.rsqrt(squares / count + self.eps).view(shape)
        if self.affine:
            outputs = outputs * self.weight.view(shape) + self.bias.view(shape)
        return outputs.to(x.dtype)

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002  # torch's signature
        if input.dim() < 2:
            raise ValueError(f"batch normalization takes (N, C, ...), not {tuple(input.shape)}")

    def _update(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Move the statistics that count in eval mode, as torch does; `variance` is that without bias."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def _sum(tensor: torch.Tensor, add: TensorSum) -> torch.Tensor:
    return cast("torch.Tensor", _Sum.apply(tensor, add))  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    """The sum over all ranks; what each rank's part of it does to all ranks' losses is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, add: TensorSum) -> torch.Tensor:
        ctx.add = add
        return add(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.add(gradient), None


def _add_with_torch(tensor: torch.Tensor) -> torch.Tensor:
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


def _add_with_horovod(tensor: torch.Tensor) -> torch.Tensor:
    import horovod.torch as hvd

    total: torch.Tensor = hvd.allreduce(tensor, op=hvd.Sum)
    return total


def _replaced(net: nn.Module, add: TensorSum) -> nn.Module:
    if isinstance(net, _BatchNorm):
        return SynchronisedBatchNorm(net, add)
    for name, child in net.named_children():
        setattr(net, name, _replaced(child, add))
    return net

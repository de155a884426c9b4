"""What is used of DeepSpeed, which is untyped: its engine, its optimizers, and what it adds to torch's parameters."""

# ruff: noqa: D102  (what the methods do is DeepSpeed's)

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn


class DeepSpeedEngine(Protocol):
    """``deepspeed.DeepSpeedEngine``."""

    module: nn.Module
    optimizer: torch.optim.Optimizer

    def __call__(self, rows: torch.Tensor) -> torch.Tensor: ...
    def backward(self, loss: torch.Tensor) -> torch.Tensor: ...
    def step(self) -> None: ...
    def compile(self) -> None: ...
    def destroy(self) -> None: ...
    def zero_optimization_stage(self) -> int: ...


class Stage3Optimizer(Protocol):
    """``DeepSpeedZeroOptimizer_Stage3``; a parameter's position is (flat tensor, offset, length)."""

    fp16_partitioned_groups_flat: Sequence[torch.Tensor]
    fp32_partitioned_groups_flat: Sequence[torch.Tensor]
    persistent_parameters: Sequence[Stage3Parameter]
    grad_position: dict[int, tuple[int, int, int]]

    def get_param_id(self, parameter: Stage3Parameter) -> int: ...


class Stage3Parameter(Protocol):
    """What stage 3 makes of a parameter."""

    ds_numel: int
    ds_shape: torch.Size
    ds_tensor: torch.Tensor
    ds_process_group: dist.ProcessGroup

    def partition(self, parameters: Sequence[Stage3Parameter]) -> None: ...
    def all_gather(self, parameters: Sequence[Stage3Parameter]) -> None: ...

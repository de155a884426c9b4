"""The optimizers that DeepSpeed makes: what they keep, and their float32 copies of parameters of 16 bits."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeGuard, cast

import torch
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

from shared.training.deepspeed.engine_types import DeepSpeedEngine, HalfOptimizer, Stage3Optimizer


def is_stage_3(optimizer: object) -> TypeGuard[Stage3Optimizer]:
    """Whether each rank has an equal part of every parameter."""
    return isinstance(optimizer, DeepSpeedZeroOptimizer_Stage3)


def master_copies(optimizer: object) -> dict[torch.Tensor, torch.Tensor]:
    """Parameters of 16 bits to their float32 copies, where there is no ZeRO; empty in all other cases."""
    if not isinstance(optimizer, FP16_UnfusedOptimizer):
        return {}
    half = cast("HalfOptimizer", optimizer)
    pairs = zip(half.fp16_groups, half.fp32_groups, strict=True)
    return {parameter: master for pair in pairs for parameter, master in zip(*pair, strict=True)}


def optimizer_states(engine: DeepSpeedEngine) -> MutableMapping[torch.Tensor, dict[str, object]]:
    """What the optimizer keeps of each tensor that it changes: entries by name."""
    optimizer: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return optimizer.state

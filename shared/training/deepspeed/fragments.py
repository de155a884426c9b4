"""Which part of each parameter this rank's optimizer holds, in any stage: as a range of the flattened parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import torch
import torch.distributed as dist
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from torch import nn

from shared.training.deepspeed.engine import master_copies
from shared.training.deepspeed.engine_types import DeepSpeedEngine, Stage3Optimizer, Stage3Parameter


@dataclass(frozen=True, slots=True)
class ParameterFragment:
    """A range of a parameter that trains, of `size` elements from `start` on of the `numel` that it has when flattened.

    The optimizer has it in `flat`, from `offset` on: DeepSpeed joins many parameters in one tensor.
    """

    name: str
    numel: int
    start: int
    size: int
    flat: torch.Tensor
    offset: int

    def view_of(self, values: torch.Tensor) -> torch.Tensor:
        """The range in something that is as long as `flat`; a view."""
        return values.detach().view(-1).narrow(0, self.offset, self.size)


def local_fragments(engine: DeepSpeedEngine) -> Iterator[ParameterFragment]:
    """This rank's fragments; without ZeRO each rank has all parameters."""
    if engine.zero_optimization_stage() == 0:
        masters = master_copies(engine.optimizer)
        for name, parameter in _trained(engine):
            flat = masters.get(parameter, parameter)
            yield ParameterFragment(name, flat.numel(), 0, flat.numel(), flat, 0)
    elif _is_stage_3(engine.optimizer):
        yield from _stage_3_fragments(engine, engine.optimizer)
    else:
        optimizer = engine.optimizer
        names = ("single_partition_of_fp32_groups", "fp32_groups_flat_partition")  # the second is of BF16_Optimizer
        flats: Sequence[torch.Tensor] = next(getattr(optimizer, name) for name in names if hasattr(optimizer, name))
        for name, parameter in _trained(engine):
            found = cast("Any", parameter)._hp_mapping  # noqa: SLF001  # of DeepSpeed's universal checkpoints
            if found is not None:
                here, there = found.lp_fragment_address, found.hp_fragment_address
                flat = flats[found.param_group_index]
                yield ParameterFragment(name, parameter.numel(), here.start, here.numel, flat, there.start)


def _stage_3_fragments(engine: DeepSpeedEngine, optimizer: Stage3Optimizer) -> Iterator[ParameterFragment]:
    """Each rank has an equal part of every parameter; the last ones are padded."""
    for name, whole in _trained(engine):
        parameter = cast("Stage3Parameter", whole)
        group, offset, length = optimizer.grad_position[optimizer.get_param_id(parameter)]
        start = dist.get_rank(parameter.ds_process_group) * length
        size = min(length, parameter.ds_numel - start)
        if size > 0:
            flat = optimizer.fp32_partitioned_groups_flat[group]
            yield ParameterFragment(name, parameter.ds_numel, start, size, flat, offset)


def refresh_model_weights(engine: DeepSpeedEngine) -> None:
    """Let the parameters that the model computes with follow those that the optimizer holds; every rank calls this."""
    optimizer = engine.optimizer
    if _is_stage_3(optimizer):
        flats = zip(optimizer.fp16_partitioned_groups_flat, optimizer.fp32_partitioned_groups_flat, strict=True)
        for values, master in flats:
            values.data.copy_(master.data)
        whole = optimizer.persistent_parameters  # small ones, which every rank has at all times
        if whole:
            whole[0].partition(whole)
            whole[0].all_gather(whole)
    elif hasattr(optimizer, "update_lp_params"):
        optimizer.update_lp_params()
    else:
        for parameter, master in master_copies(optimizer).items():
            parameter.data.copy_(master.data)


def _is_stage_3(optimizer: object) -> TypeGuard[Stage3Optimizer]:
    return isinstance(optimizer, DeepSpeedZeroOptimizer_Stage3)


def _trained(engine: DeepSpeedEngine) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in engine.module.named_parameters() if parameter.requires_grad)

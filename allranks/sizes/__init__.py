"""The VM sizes that people train on: their GPUs, their InfiniBand, and which steps fit them. No SDK."""

from __future__ import annotations

from allranks.sizes.builds import BuildTable, build_table, judge_image, runs_on
from allranks.sizes.fit import MachineUse, Misfit, find_misfits
from allranks.sizes.table import VMSize, all_sizes, find_size, nccl_variables, with_infiniband

__all__ = [
    "BuildTable",
    "MachineUse",
    "Misfit",
    "VMSize",
    "all_sizes",
    "build_table",
    "find_misfits",
    "find_size",
    "judge_image",
    "nccl_variables",
    "runs_on",
    "with_infiniband",
]

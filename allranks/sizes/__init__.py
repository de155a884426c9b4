"""The VM sizes that people train on: their GPUs, their InfiniBand, and which steps fit them. No SDK."""

from __future__ import annotations

from allranks.sizes.builds import BuildTable, build_table, images_in_words, judge_image, runs_on
from allranks.sizes.fit import Misfit, Use, misfits
from allranks.sizes.table import VMSize, find, nccl_variables, sizes, with_infiniband

__all__ = [
    "BuildTable",
    "Misfit",
    "Use",
    "VMSize",
    "build_table",
    "find",
    "images_in_words",
    "judge_image",
    "misfits",
    "nccl_variables",
    "runs_on",
    "sizes",
    "with_infiniband",
]

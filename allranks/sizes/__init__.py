"""The VM sizes that people train on: their GPUs, their InfiniBand, and which steps fit them. No SDK."""

from __future__ import annotations

from allranks.sizes.fit import Misfit, Use, misfits
from allranks.sizes.nccl import nccl_variables
from allranks.sizes.table import VMSize, find, sizes, with_infiniband

__all__ = ["Misfit", "Use", "VMSize", "find", "misfits", "nccl_variables", "sizes", "with_infiniband"]

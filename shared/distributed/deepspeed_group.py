"""DeepSpeed on the process group of PyTorch that every trainer has: any launcher, no ssh, no variable overwritten."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import torch.distributed as dist

from shared.distributed.control import Control
from shared.distributed.errors import Refusal
from shared.distributed.frameworks import FrameworkGroup
from shared.distributed.launch import Launch
from shared.distributed.torch_group import start_torch


def start_deepspeed(launch: Launch, control: Control, backend: str | None, timeout: timedelta) -> FrameworkGroup:
    """Make the process group as for ``torch``, and tell DeepSpeed that it is there.

    DeepSpeed finds its ranks itself if it is let: on Azure ML it then replaces NCCL_SOCKET_IFNAME, and on one node the
    port (`patch_aml_env_for_torch_nccl_backend` in deepspeed/comm/comm.py). Here it never looks.

    Raises:
        Refusal: DeepSpeed is missing, there are GPUs that cannot be used, or fewer than processes on a node.
    """
    try:
        import deepspeed
    except ImportError as error:
        remedy = "Install it: pip install deepspeed."
        raise Refusal(f"DeepSpeed cannot be imported ({error}). {remedy}") from error
    # DeepSpeed calls torch by names that torch wants to give up: thousands of lines that nobody here can act upon.
    warnings.filterwarnings("ignore", r".*(all_gather_into|reduce_scatter)_tensor` is deprecated", FutureWarning)
    group = start_torch(launch, control, backend, timeout)
    # For inference on CPUs DeepSpeed would compile an all-reduce of its own here, for a minute, or fail without a
    # compiler; no training uses it.
    deepspeed.ops.__compatible_ops__ = {"deepspeed_shm_comm": False}
    deepspeed.init_distributed(
        dist.get_backend(), auto_mpi_discovery=False, dist_init_required=False, timeout=timeout, verbose=False
    )
    replaced = local_ranks_to_replace(group.device.index, os.environ)
    os.environ.update(dict.fromkeys(replaced, str(group.device.index)))
    return FrameworkGroup(group.device, f"deepspeed over {group.description}", partial(_close, replaced))


def _close(replaced: Mapping[str, str]) -> None:
    """Destroy the group, while Python still runs, and give back the launcher's variables.

    A thread of gloo that lets go of a collective's tensors while Python is already ending takes the process with it by
    SIGABRT ("terminate called without an active exception"), after all the work is done: 6 of 60 ranks that exited
    right after an all-reduce, with or without DeepSpeed. `init` has let all ranks meet before this.
    """
    from deepspeed import comm

    gc.collect()  # engines hold the group in cycles
    comm.destroy_process_group()
    os.environ.update(replaced)


def local_ranks_to_replace(gpu: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that DeepSpeed takes for its GPU's number, where each rank sees one of its own and they differ.

    It compares the two with each other, so that both have to be changed while it runs; nothing else is overwritten.
    """
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return {name: environ[name] for name in names if gpu is not None and environ.get(name, str(gpu)) != str(gpu)}

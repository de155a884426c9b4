"""One module for every launcher: who am I, are all here, agree, and fail together.

    from shared.distributed import init

    with init("torch") as world:
        model = DistributedDataParallel(build().to(world.device))
        ...

The same three lines run under plain ``python``, torchrun, Azure ML's PyTorch, MPI and TensorFlow jobs, Open MPI, Slurm
and horovodrun. ``init()`` without a framework needs the standard library alone: the ranks then still share
``world.once``, ``world.barrier``, ``world.gather``, ``world.collect``, ``world.sum`` and ``world.max``.
"""

from shared.distributed.errors import (
    ControlError,
    LaunchError,
    OnceError,
    PeerError,
    Refusal,
    UnsavedError,
    WaitTimeoutError,
)
from shared.distributed.launch import Launch, detect
from shared.distributed.startup import init
from shared.distributed.world import World

__all__ = [
    "ControlError",
    "Launch",
    "LaunchError",
    "OnceError",
    "PeerError",
    "Refusal",
    "UnsavedError",
    "WaitTimeoutError",
    "World",
    "detect",
    "init",
]

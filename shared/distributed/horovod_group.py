"""Horovod over MPI, for tensors of PyTorch (the default) or TensorFlow."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from shared.distributed.control import Control
from shared.distributed.errors import ControlError, Refusal
from shared.distributed.frameworks import FrameworkGroup
from shared.distributed.launch import Launch

_BACKENDS = ("torch", "tensorflow")
_MPI_LAUNCHERS = frozenset({"azureml-mpi", "openmpi", "horovodrun"})


def start_horovod(launch: Launch, control: Control, backend: str | None, timeout: timedelta) -> FrameworkGroup:
    """Choose the device and start Horovod, for tensors of ``torch`` (also without a backend) or ``tensorflow``.

    Local ranks are the launch's: under Open MPI 5 with several emulated nodes ``hvd.local_rank()`` counts all processes
    of the machine. A collective that not all ranks have reached ends the run after the time-out.

    Raises:
        Refusal: Horovod is missing, the ranks were not started by MPI, there are GPUs that cannot be used, or
            a node has fewer than processes.
        ControlError: MPI sees another world than the launcher's variables describe.
    """
    backend = backend or _BACKENDS[0]
    if backend not in _BACKENDS:
        raise ValueError(f"backend={backend!r}: with horovod it has to be None or one of {', '.join(_BACKENDS)}.")
    if launch.world_size > 1 and launch.launcher not in _MPI_LAUNCHERS:
        raise Refusal(
            f"Horovod exchanges tensors over MPI, and these {launch.world_size} processes were started by "
            f"{launch.launcher}. Give the step the distribution `type: mpi`, or start the script with mpirun."
        )
    choose = _torch_device if backend == "torch" else _tensorflow_device
    device, kind = choose(launch, control)
    _limit_stalls(timeout)
    # Or groups of tensors that happen to be ready together go as one, and are summed up in another order.
    os.environ.setdefault("HOROVOD_DISABLE_GROUP_FUSION", "1")
    hvd = _horovod(backend)
    hvd.init()
    if (hvd.rank(), hvd.size()) != (launch.rank, launch.world_size):
        raise ControlError(
            f"MPI says rank {hvd.rank()} of {hvd.size()}, the launcher's variables rank {launch.rank} of "
            f"{launch.world_size}. Is the mpirun that started this process of the same MPI as Horovod's?"
        )
    return FrameworkGroup(device, f"{backend} over horovod on {kind}", hvd.shutdown)


def _horovod(backend: str) -> Any:
    try:
        if backend == "torch":
            import horovod.torch as hvd
        else:
            import horovod.tensorflow as hvd
    except ImportError as error:
        raise Refusal(f"Horovod cannot be imported ({error}). Build it: allranks env build horovod.") from error
    return hvd


def _torch_device(launch: Launch, control: Control) -> tuple[Any, str]:
    import torch

    from shared.distributed.torch_group import choose_device

    device = choose_device(launch, control)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before Horovod, which opens a context on the current GPU
    return device, device.type


def _tensorflow_device(launch: Launch, control: Control) -> tuple[str, str]:
    from shared.distributed.tensorflow_group import limit_threads, take_gpus

    limit_threads(launch)
    gpus = take_gpus(launch, control, one_each=True)
    return ("/GPU:0", "cuda") if gpus else ("/CPU:0", "cpu")


def _limit_stalls(timeout: timedelta) -> None:
    """Horovod only warns about a rank that does not come, for ever, unless these say otherwise when it starts."""
    seconds = max(1, round(timeout.total_seconds()))
    os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", str(max(1, min(60, seconds // 2))))
    os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(seconds))

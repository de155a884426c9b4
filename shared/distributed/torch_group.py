"""PyTorch: the device first, then the process group."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from shared.distributed.control import Control
from shared.distributed.errors import Refusal
from shared.distributed.launch import Launch
from shared.distributed.wire import listen

PATIENCE = 5.0  # seconds in which a process of an earlier attempt may let go of the port


@dataclass(frozen=True, slots=True)
class TorchGroup:
    """The default process group and this rank's device."""

    device: torch.device
    description: str

    def close(self) -> None:
        """Destroy the group."""
        dist.destroy_process_group()


def start(launch: Launch, control: Control, backend: str | None, timeout: timedelta) -> TorchGroup:
    """Choose the device and make the default process group.

    Args:
        launch: this process's place.
        control: its ``world_id`` names this start in a store that may outlive it.
        backend: None is ``nccl`` on GPUs and ``gloo`` without.
        timeout: for the group's collectives.

    Raises:
        Refusal: there are more processes than GPUs on this node.
    """
    device = choose_device(launch)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before the group, or every rank opens a context on GPU 0
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(control.world_id, _store(launch, timeout)),
        rank=launch.rank,
        world_size=launch.world_size,
        timeout=timeout,
        device_id=device if backend == "nccl" else None,
    )
    return TorchGroup(device, f"{backend} on {device.type}")


def choose_device(launch: Launch) -> torch.device:
    """The GPU of this local rank, or the CPU where there is none.

    Raises:
        Refusal: there are more processes than GPUs on this node.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if launch.local_world_size > count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise Refusal(
            f"{launch.local_world_size} processes on node {launch.node_rank}, but {count} GPU(s)"
            + (f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else "")
            + f". Start at most {count} process(es) per node, or set CUDA_VISIBLE_DEVICES to nothing to use the CPU."
        )
    return torch.device("cuda", launch.local_rank)


def _store(launch: Launch, timeout: timedelta) -> dist.Store:
    """Where the ranks find each other: under torchrun its agent's store, else one in rank 0.

    torch's own would listen on every interface, whatever the main address is; so it gets a socket of ours.
    """
    if launch.world_size == 1:
        return dist.HashStore()
    host = launch.main_address.strip("[]")
    if launch.launcher == "torchrun" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # It survives a restart of the ranks with the old addresses in it: the prefix around it is another one then.
        return dist.TCPStore(host, launch.main_port, launch.world_size, is_master=False, timeout=timeout)
    if launch.rank != 0:
        return dist.TCPStore(host, launch.main_port, launch.world_size, is_master=False, timeout=timeout)
    listener = listen(launch.main_address, launch.main_port, launch.num_nodes, PATIENCE)
    return dist.TCPStore(
        host,
        launch.main_port,
        launch.world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,  # they are all there: the control plane has met
        master_listen_fd=listener.detach(),
    )

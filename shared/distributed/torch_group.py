"""PyTorch: the device first, then the process group."""

from __future__ import annotations

import os
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # it exports them

from shared.distributed import devices
from shared.distributed.address import has_agent_store
from shared.distributed.control import Control
from shared.distributed.devices import NodeGpus, read_node
from shared.distributed.errors import Refusal
from shared.distributed.frameworks import FrameworkGroup
from shared.distributed.launch import Launch
from shared.distributed.wire import PORT_PATIENCE, listen_on_port

_REMEDY = (
    "Install a build of torch for CUDA 12.6, which drivers of the 525 series and newer can run: "
    f"pip install torch=={torch.__version__.partition('+')[0]} --index-url https://download.pytorch.org/whl/cu126."
)


def start_torch(launch: Launch, control: Control, backend: str | None, timeout: timedelta) -> FrameworkGroup:
    """Choose the device and make the default process group; without a backend ``nccl`` on GPUs and ``gloo`` elsewhere.

    Raises:
        Refusal: there are GPUs that cannot be used, or fewer than processes on a node.
    """
    device = choose_device(launch, control)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # before the group, or every rank opens a context on GPU 0
    if dist.is_initialized():
        return _adopt_group(launch, backend, device)
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    dist.init_process_group(
        backend,
        store=PrefixStore(control.world_id, _store(launch, timeout)),  # the store may outlive this start
        rank=launch.rank,
        world_size=launch.world_size,
        timeout=timeout,
        device_id=device if backend == "nccl" else None,
    )
    return FrameworkGroup(device, f"{backend} on {device.type}", dist.destroy_process_group)


def _adopt_group(launch: Launch, backend: str | None, device: torch.device) -> FrameworkGroup:
    """Use the default process group that the program has made before `init`; whoever made it ends it."""
    has, rank, world_size = dist.get_backend(), dist.get_rank(), dist.get_world_size()
    if (rank, world_size) != (launch.rank, launch.world_size) or backend not in (None, has):
        raise Refusal(
            f"there is a process group already: {has}, rank {rank} of {world_size}; {backend or 'any backend'}, rank "
            f"{launch.rank} of {launch.world_size} is wanted. Call init before other code makes a group, or end that "
            "with torch.distributed.destroy_process_group()."
        )
    return FrameworkGroup(device, f"{has} on {device.type}, made before", lambda: None)


def choose_device(launch: Launch, control: Control) -> torch.device:
    """The GPU of this rank, or the CPU where there is none or somebody has hidden them; all ranks meet here.

    Raises:
        Refusal: on every rank, if any has a GPU that cannot be used, see ``devices``.
    """
    node = read_node(os.environ)
    found = torch_gpus(node)
    index = devices.choose_gpu(node, found, launch)
    device = torch.device("cpu") if index is None else torch.device("cuda", index)
    if device.type == "cuda" and not torch.version.hip:
        devices.check_kernels(
            found.name,
            torch.cuda.get_device_name(device),
            torch.cuda.get_device_capability(device),
            torch.cuda.get_arch_list(),
            torch.version.cuda or "",
            node,
        )
    identity = gpu_identity(device) if device.type == "cuda" else ""
    devices.agree_on_devices(control, launch, node, found.count, identity)
    return device


def torch_gpus(node: NodeGpus) -> devices.FrameworkGpus:
    """What torch says of the GPUs; where it can use none of those that a node has, why, in its own words."""
    toolkit: devices.Toolkit = "ROCm" if torch.version.hip else "CUDA" if torch.version.cuda else ""
    version = torch.version.hip or torch.version.cuda or ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch only warns of is an error here
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    complaint = _complaint() if toolkit and not count and node.expects_gpu else ""
    return devices.FrameworkGpus(f"torch {torch.__version__}", toolkit, version, count, _REMEDY, complaint)


def gpu_identity(device: torch.device) -> str:
    """What tells a GPU from all others, on any node; the parts of a GPU (MIG) have the id of the whole in common."""
    here = devices.visible_identity(os.environ)
    return here if "MIG-" in here else str(getattr(torch.cuda.get_device_properties(device), "uuid", "")) or here


def _complaint() -> str:
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return " ".join(str(error).split())[:300].rstrip(".")
    return ""


def _store(launch: Launch, timeout: timedelta) -> Store:
    """Where the ranks find each other: under torchrun its agent's store, else one in rank 0.

    torch's own would listen on every interface, whatever the main address is; so it gets a socket of ours.
    """
    if launch.world_size == 1:
        return HashStore()
    host = launch.main_address.strip("[]")
    # The agent's survives a restart of the ranks with the old addresses in it: the prefix is another one then.
    if has_agent_store(os.environ, launch.launcher) or launch.rank != 0:
        return TCPStore(host, launch.main_port, launch.world_size, is_master=False, timeout=timeout)
    listener = listen_on_port(launch.main_address, launch.main_port, launch.num_nodes, PORT_PATIENCE)
    return TCPStore(
        host,
        launch.main_port,
        launch.world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=False,  # they are all there: the control plane has met
        master_listen_fd=listener.detach(),
    )

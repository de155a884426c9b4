"""What one rank knows of its machine: device, versions, InfiniBand."""

from __future__ import annotations

import os
import platform
import socket
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from shared.distributed import Refusal, World
from shared.distributed.devices import NodeGpus, choose_gpu, read_node

_PACKAGES = ("torch", "numpy", "horovod", "mpi4py", "tensorflow", "tensorflow-cpu", "deepspeed", "transformers")


def describe_machine(world: World) -> dict[str, Any]:
    """The facts of this rank, as JSON."""
    node = read_node(os.environ)
    return {
        "rank": world.rank,
        "node": world.node_rank,
        "host": socket.gethostname(),
        "device": _device(world),
        "unusable": _unusable_gpus(node, world),
        "versions": {"python": platform.python_version(), **_versions(), "driver": node.driver or "none"},
        "infiniband": infiniband_ports(Path("/sys/class/infiniband")),
        "variables": {name: os.environ[name] for name in sorted(os.environ) if name.startswith("NCCL_")},
    }


def _device(world: World) -> dict[str, Any]:
    """The device that this rank computes on; a GPU by its unique id, so that two ranks on one are noticed."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {"kind": "cpu", "name": platform.machine(), "cores": len(os.sched_getaffinity(0))}
    properties = torch.cuda.get_device_properties(world.device)
    return {
        "kind": "cuda",
        "name": properties.name,
        "memory_gb": round(properties.total_memory / 1e9, 1),
        "id": str(getattr(properties, "uuid", "")) or f"{socket.gethostname()}:{world.local_rank}",
    }


def _unusable_gpus(node: NodeGpus, world: World) -> str:
    """Why torch cannot use the GPUs of this node; empty where it can, or there are none.

    With torch as transport ``init`` has refused already; MPI asks for no device, and the training behind it will.
    """
    if not node.expects_gpu or node.wants_cpu:
        return ""
    try:
        from shared.distributed.torch_group import torch_gpus
    except ImportError:
        return ""  # an environment without torch: its own framework has to see
    try:
        choose_gpu(node, torch_gpus(node), world.launch)
    except Refusal as refusal:
        return str(refusal)
    return ""


def _versions() -> dict[str, str]:
    """Versions that have to be the same on all ranks."""
    found = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        found |= {"cuda": str(torch.version.cuda), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    return found


def infiniband_ports(root: Path) -> list[dict[str, str]]:
    """The RDMA ports below the kernel's folder: device, port, state (``ACTIVE``), rate (``200 Gb/sec``), link layer."""
    ports = []
    for port in sorted(root.glob("*/ports/*")) if root.is_dir() else []:
        facts = {"device": port.parent.parent.name, "port": port.name}
        for name in ("state", "rate", "link_layer"):
            try:
                facts[name] = (port / name).read_text().strip().rpartition(": ")[2]
            except OSError:
                facts[name] = "unknown"
        ports.append(facts)
    return ports

"""The table of VM sizes, read from ``sizes.yaml``, which names the page that each fact comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from allranks.catalogue import load_yaml

_FILE = Path(__file__).with_name("sizes.yaml")


@dataclass(frozen=True, slots=True)
class VMSize:
    """One size of virtual machine.

    Attributes:
        gpu: the GPU's model, such as ``A100``; empty for a size without.
        gpus: GPUs that a job sees; a share of one counts as one.
        gpu_memory: GB of each GPU; 0 without one.
        links: InfiniBand links; 0 without InfiniBand.
        link_speed: Gb/s of each link.
        sriov: whether the RDMA hardware has SR-IOV, without which NCCL cannot use it.
        ethernet: Gb/s of Ethernet of the whole machine, the most that Azure allows it; 0 where the table does not know.
        local_rate: GB/s between two GPUs of the machine, in one direction; 0 where the table does not know.
        has_nvlink: whether that is NVLink, and not PCIe.
        relaxed_ordering: whether Azure's own images switch NCCL's PCI relaxed ordering on.
        retired: the last day of the size (ISO date), or empty.
        source: the page that says so.
    """

    name: str
    series: str
    gpu: str
    gpus: int
    gpu_memory: int
    links: int
    link_speed: int
    sriov: bool
    ethernet: int
    local_rate: float
    has_nvlink: bool
    relaxed_ordering: bool
    retired: str
    source: str

    @property
    def infiniband(self) -> int:
        """Gb/s of InfiniBand that a job can use, over all links together; 0 for none."""
        return self.links * self.link_speed if self.sriov else 0

    @property
    def has_unusable_rdma(self) -> bool:
        """Whether there is RDMA hardware, of the older kind that NCCL cannot use."""
        return self.links > 0 and not self.sriov


@cache
def all_sizes() -> Mapping[str, VMSize]:
    """Every size of the table by its name in lower case; Azure does not mind upper and lower case."""
    document = load_yaml(_FILE.read_text(encoding="utf-8"))
    return MappingProxyType(
        {
            name.lower(): _size(name, facts, series)
            for series in document["series"]
            for name, facts in series["sizes"].items()
        }
    )


def _size(name: str, facts: Mapping[str, Any], series: Mapping[str, Any]) -> VMSize:
    links, speed = facts.get("infiniband", (0, 0))
    return VMSize(
        name=name,
        series=series["name"],
        gpu=series.get("gpu", ""),
        gpus=facts.get("gpus", 0),
        gpu_memory=facts.get("gpu_memory", series.get("gpu_memory", 0)),
        links=links,
        link_speed=speed,
        sriov=facts.get("sriov", True),
        ethernet=facts.get("ethernet", series.get("ethernet", 0)),
        local_rate=series.get("nvlink", series.get("pcie", 0)),
        has_nvlink="nvlink" in series,
        relaxed_ordering=series.get("relaxed_ordering", False),
        retired=str(series.get("retired", "")),
        source=series["source"],
    )


def find_size(name: str) -> VMSize | None:
    """The size of that name, in any spelling of upper and lower case; None for one that the table does not have."""
    return all_sizes().get(name.lower())


def with_infiniband(like: VMSize) -> VMSize | None:
    """A size of today with InfiniBand and the same GPU: the one with as much memory or the next; None without one."""
    found = [
        size
        for size in all_sizes().values()
        if size.gpu == like.gpu and like.gpu and size.infiniband and not size.retired
    ]
    return min(found, key=lambda size: abs(size.gpu_memory - like.gpu_memory), default=None)


def nccl_variables(size: str) -> dict[str, str]:
    """The environment variables for a step of several nodes of this size; empty for one that none is known to help.

    PCI relaxed ordering is what lets a virtual machine write to its GPUs at the speed of the links; Azure's own images
    for ND A100 v4 and later set it in ``/etc/nccl.conf``, which a container does not see
    (https://github.com/Azure/azhpc-images/blob/master/customizations/ndv5.sh). NCCL from 2.12 on tries it by itself;
    1 demands it. What is left alone, and why: ``NCCL_SOCKET_IFNAME`` and ``NCCL_IB_DISABLE`` are Azure ML's to set, and
    ``NCCL_TOPO_FILE`` must name a file that only the node can look for.
    """
    known = find_size(size)
    return {"NCCL_IB_PCI_RELAXED_ORDERING": "1"} if known is not None and known.relaxed_ordering else {}

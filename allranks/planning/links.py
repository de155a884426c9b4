"""What the wires give: between the GPUs of a node, and between nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from allranks.sizes import VMSize

BITS = 8
RDMA_SHARE = 0.92
"""Of the nominal rate that large exchanges reach over InfiniBand and RoCE: what NCCL itself reckons with (its tuner
takes 92 % of a link; github.com/NVIDIA/nccl, src/graph/tuning.cc). Not fitted."""
TCP_SHARE = 0.8
"""Of the nominal rate of Ethernet that NCCL's and gloo's sockets reach. Assumed; not fitted."""
LOCAL_SHARE = 0.8
"""Of the nominal rate between GPUs of one node: NVLink's and PCIe's headers. Assumed; not fitted."""
NVLINK_LATENCY, PCIE_LATENCY, RDMA_LATENCY = 3.4e-6, 5.7e-6, 14e-6
"""Seconds of one hop of a ring with NCCL's protocol for large messages: its own table, same file."""
TCP_LATENCY = 50e-6
"""Seconds of one hop over sockets between virtual machines. Assumed."""
PCIE_RATE = 16e9
"""Bytes a second, one direction, of 16 lanes of PCIe 3.0: what is taken where a size's table says nothing better."""


@dataclass(frozen=True, slots=True)
class NetworkLink:
    """A kind of wire: bytes a second that a large exchange gets in one direction, and seconds for one hop of a ring."""

    rate: float
    latency: float

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.latency < 0:
            raise ValueError(
                f"a link of {self.rate:g} bytes a second and {self.latency:g} s: the first must be above 0."
            )


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The network that the ranks of a step see.

    Attributes:
        ranks_per_node: that take part in one exchange on each node.
        local: between two ranks of a node.
        remote: between nodes, of all links of a node together: a ring passes each link once.
        kind: how people call what is between the nodes.
    """

    ranks_per_node: int
    local: NetworkLink
    remote: NetworkLink
    kind: str = ""

    def divided(self, groups: int) -> NodeNetwork:
        """The network of one of so many groups that exchange at once, each with its share of ranks and links."""
        ranks = max(1, self.ranks_per_node // groups)
        return replace(self, ranks_per_node=ranks, remote=replace(self.remote, rate=self.remote.rate / groups))


def network_of_size(size: VMSize, ranks_per_node: int, gigabits: float | None = None) -> NodeNetwork | None:
    """The network of a VM size; None where the table does not know its Ethernet and nobody gives it.

    Args:
        size: as ``sizes.yaml`` has it.
        ranks_per_node: processes of the step on each node.
        gigabits: Gb/s between nodes, of the whole node, in place of the table's.
    """
    local = NetworkLink(LOCAL_SHARE * (size.local_rate * 1e9 or PCIE_RATE), _local_latency(size))
    nominal = size.infiniband or size.ethernet if gigabits is None else gigabits
    if not nominal:
        return None
    if size.infiniband:
        remote = NetworkLink(RDMA_SHARE * nominal * 1e9 / BITS, RDMA_LATENCY)
        return NodeNetwork(ranks_per_node, local, remote, f"{nominal:g} Gb/s InfiniBand")
    remote = NetworkLink(TCP_SHARE * nominal * 1e9 / BITS, TCP_LATENCY)
    return NodeNetwork(ranks_per_node, local, remote, f"{nominal:g} Gb/s Ethernet")


def _local_latency(size: VMSize) -> float:
    return NVLINK_LATENCY if size.has_nvlink else PCIE_LATENCY

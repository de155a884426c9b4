"""The variables that help NCCL on sizes with InfiniBand, and on no other."""

from __future__ import annotations

from allranks.sizes.table import find


def nccl_variables(size: str) -> dict[str, str]:
    """The environment variables for a step of several nodes of this size; empty where none would help.

    PCI relaxed ordering is what lets a virtual machine write to its GPUs at the speed of the links; Azure's own images
    for ND A100 v4 and later set it in ``/etc/nccl.conf``, which a container does not see
    (https://github.com/Azure/azhpc-images/blob/master/customizations/ndv5.sh). NCCL from 2.12 on tries it by itself;
    1 demands it. What is left alone, and why: ``NCCL_SOCKET_IFNAME`` and ``NCCL_IB_DISABLE`` are Azure ML's to set, and
    ``NCCL_TOPO_FILE`` must name a file that only the node can look for.

    Args:
        size: a VM size such as ``Standard_ND96isr_H100_v5``; one that is not known gets nothing.
    """
    known = find(size)
    return {"NCCL_IB_PCI_RELAXED_ORDERING": "1"} if known is not None and known.relaxed_ordering else {}

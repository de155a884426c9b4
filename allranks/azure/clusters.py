"""Compute clusters: their YAML, and making one in a workspace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allranks.azure.client import found_or_none, quiet_sdk
from allranks.azure.retry import call_with_retry
from allranks.errors import UsageError
from allranks.sizes import VMSize, build_table, find_misfits, find_size, images_in_words, judge_image, with_infiniband
from allranks.sizes.fit import NODES_KEY, MachineUse

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]")
_SCHEMA = "https://azuremlschemas.azureedge.net/latest/amlCompute.schema.json"
_LIMITS = ("min_instances", "max_instances", "idle_time_before_scale_down")
"""What can be changed of a cluster that is there."""


@dataclass(frozen=True, slots=True)
class ComputeCluster:
    """A cluster of equal machines (AmlCompute).

    Attributes:
        size: the VM size of its nodes.
        nodes: the most nodes that it grows to.
        min_nodes: nodes that stay, and cost, while there is nothing to do.
        idle_seconds: how long a node waits for the next step before it is given back.

    Raises:
        UsageError: the name or a number is not one that Azure takes.
    """

    name: str
    size: str
    nodes: int = 4
    min_nodes: int = 0
    idle_seconds: int = 600

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            rule = "3 to 24 letters, digits and dashes, a letter first, no dash last"
            raise UsageError(f"{self.name!r} is no name of a cluster: {rule}.")
        if self.nodes < 1 or not 0 <= self.min_nodes <= self.nodes:
            message = f"a cluster of {self.min_nodes} to {self.nodes} nodes cannot be."
            raise UsageError(message, "--nodes is at least 1, --min-nodes between 0 and that.")
        if self.idle_seconds < 0:
            raise UsageError(f"--idle {self.idle_seconds}: seconds begin at 0.")

    def fields(self) -> dict[str, Any]:
        """The cluster in the words of the SDK's ``AmlCompute`` and of its YAML."""
        return {
            "name": self.name,
            "size": self.size,
            "tier": "dedicated",
            "min_instances": self.min_nodes,
            "max_instances": self.nodes,
            "idle_time_before_scale_down": self.idle_seconds,
        }

    def yaml(self) -> str:
        """The YAML that ``az ml compute create --file`` takes."""
        import yaml

        document = {"$schema": _SCHEMA, "name": self.name, "type": "amlcompute"} | self.fields()
        return yaml.safe_dump(document, sort_keys=False)


def require_infiniband(size: str) -> None:
    """Raise UsageError for a size that is not known to have InfiniBand which NCCL can use."""
    known = find_size(size)
    hint = "See: allranks cluster sizes --infiniband."
    if known is None:
        raise UsageError(f"{size!r} is not in the table of sizes, so nothing is known of its InfiniBand.", hint)
    if known.infiniband:
        return
    why = "is of the older kind without SR-IOV" if known.has_unusable_rdma else "is not there"
    better = with_infiniband(known)
    choice = f"With the same GPU: {better.name}, {better.infiniband} Gb/s." if better else hint
    raise UsageError(f"{known.name}: InfiniBand that NCCL can use {why}.", choice)


def cluster_notes(cluster: ComputeCluster) -> list[str]:
    """What a person should know before paying for it."""
    found = [
        f"{message} {hint}" for where, message, hint, _ in find_misfits(MachineUse(cluster.size)) if where != NODES_KEY
    ]
    size = find_size(cluster.size)
    if size is not None and not _suits_every_image(size):
        found.append(f"Of the library's environments for GPUs, {cluster.size} suits {images_in_words(size)}.")
    if size is not None and size.gpus and not size.infiniband and cluster.nodes > 1:
        better = with_infiniband(size)
        other = f" For steps of several nodes {better.name} has {better.infiniband} Gb/s." if better else ""
        found.append(f"{size.name} has no InfiniBand that NCCL can use.{other}")
    return found


def _suits_every_image(size: VMSize) -> bool:
    verdicts = [judge_image(image, size) for image in build_table().images]
    return all(verdict.suits and not verdict.reason for verdict in verdicts)


def create_cluster(client: Any, cluster: ComputeCluster, tell: Callable[[str], None]) -> bool:
    """Make the cluster, or change the limits of one that is there; wait for Azure, and return whether it is new.

    Raises:
        UsageError: there is another compute of that name, whose size or tier cannot be changed.
    """
    with quiet_sdk():
        from azure.ai.ml.entities import AmlCompute

        there = call_with_retry(lambda: found_or_none(lambda: client.compute.get(cluster.name)), tell)
        if there is None:
            wanted = AmlCompute(**cluster.fields())
        else:  # sent whole: what is not said, such as an identity or a network, would be taken away
            _compare(there, cluster)
            wanted = there
            if there.network_settings is not None and not there.network_settings.subnet:
                wanted.network_settings = None  # azure-ai-ml 1.35 reads an empty one, and fails on it when it is sent
            for limit in _LIMITS:
                setattr(wanted, limit, cluster.fields()[limit])
        call_with_retry(lambda: client.compute.begin_create_or_update(wanted).result(), tell)
    return there is None


def _compare(there: Any, cluster: ComputeCluster) -> None:
    size, tier = str(getattr(there, "size", "")), str(getattr(there, "tier", "")).lower()
    if (size.lower(), tier) != (cluster.size.lower(), "dedicated"):
        message = f"there is a compute {cluster.name!r} already: {size or there.type}, {tier or 'no tier'}."
        raise UsageError(message, "Its size and tier cannot be changed: choose another name, or delete it in Studio.")

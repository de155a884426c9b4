"""What a training step takes: computing, what of the exchanges it cannot hide, and waiting for the slowest rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from allranks.planning.collectives import all_reduce_seconds, gather_seconds
from allranks.planning.links import NodeNetwork

REPLICATED, SHARDED, GRADIENTS_SHARDED = "replicated", "sharded", "gradients_sharded"
"""How a model lies on its ranks: whole on each (DDP, Horovod, ZeRO 1), in parts that are gathered for both passes
(FSDP, ZeRO 3), or in parts that are gathered for the forward pass and kept for the backward (SHARD_GRAD_OP, ZeRO 2)."""
FORWARD_SHARE = 1 / 3
"""Of a step's computing that is the forward pass: one of three equal products of matrices for each weight."""
BUCKET_BYTES = 25 * 2**20
"""Of gradients that are exchanged together: PyTorch's default bucket_cap_mb."""
STRAGGLER_SPREAD = 0.015
"""Standard deviation of a rank's step time, as a share of it. The one constant that is fitted: to 5 published
efficiencies, by benchmarks/published_scaling.py."""
CONTENTION = 0.25
"""Seconds by which computing is slowed for each second of exchange beside it: NCCL takes up to 32 of the 132
multiprocessors of an H100. Not fitted."""


@dataclass(frozen=True, slots=True)
class ModelExchange:
    """What ranks exchange of a model in a step.

    Attributes:
        gradient_bytes: of all gradients as they travel.
        weight_bytes: of all weights as they are gathered; 0 for those of a replicated model.
        division: how it lies on the ranks.
        units: parts that are gathered one after another, such as layers.
        bucket_bytes: of gradients of a replicated model that travel together.
        overlaps: whether gradients travel while others are computed.
    """

    gradient_bytes: float
    weight_bytes: float = 0.0
    division: str = REPLICATED
    units: int = 1
    bucket_bytes: float = BUCKET_BYTES
    overlaps: bool = True


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a rank computes in a step.

    Attributes:
        compute_seconds: of all of its micro-batches together, undisturbed.
        micro_batches: parts that it computes one after another; gradients of a replicated model travel after the last.
        pipeline_stages: ranks that have the layers one after the other; each computes its own while others wait.
        model_groups: ranks that share each layer, on one node: so many exchanges share the links of a node.
    """

    compute_seconds: float
    micro_batches: int = 1
    pipeline_stages: int = 1
    model_groups: int = 1


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, by what they go into; ``total`` is their sum.

    Attributes:
        exchange: what all exchanges take, hidden or not.
        exposed: of that, what nothing is computed beside.
        contention: by how much computing is slower beside the rest.
        straggling: waiting for the slowest rank.
        bubble: pipeline stages without work.
    """

    compute: float
    exchange: float
    exposed: float
    contention: float
    straggling: float
    bubble: float

    @property
    def total(self) -> float:
        """Seconds from one step to the next."""
        return self.compute + self.exposed + self.contention + self.straggling + self.bubble

    @property
    def efficiency(self) -> float:
        """The part of the step in which a rank computes: 1 for a rank alone."""
        return self.compute / self.total if self.total else 1.0


def straggler_share(ranks: int, spread: float = STRAGGLER_SPREAD) -> float:
    """By what share of itself a step is longer for the slowest of so many ranks, whose times are normal.

    The expected largest of n, by Blom (1958): the quantile (n - 0.375) / (n + 0.25). 0 for one rank.
    """
    return 0.0 if ranks < 2 else spread * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def predict_step(
    work: StepWork,
    model: ModelExchange,
    network: NodeNetwork,
    nodes: int,
    *,
    spread: float = STRAGGLER_SPREAD,
    contention: float = CONTENTION,
) -> StepTime:
    """What a step takes on so many nodes.

    Args:
        work: of one rank; what it computes at this number of nodes.
        model: whose parts by ``model_groups`` and ``pipeline_stages`` each exchange on their own.
        network: of a whole node.
        nodes: from 1; pipeline stages lie on nodes of their own.
        spread: see STRAGGLER_SPREAD.
        contention: see CONTENTION.
    """
    parts = work.model_groups * work.pipeline_stages
    shared = network.divided(work.model_groups)
    replicas = max(1, nodes // work.pipeline_stages) if network.ranks_per_node > 1 else max(1, nodes)
    whole, exposed = _exchange(work, model, shared, replicas, parts)
    compute = work.compute_seconds
    bubble = compute * (work.pipeline_stages - 1) / work.micro_batches
    return StepTime(
        compute=compute,
        exchange=whole,
        exposed=exposed,
        contention=contention * (whole - exposed),
        straggling=compute * straggler_share(nodes * network.ranks_per_node, spread),
        bubble=bubble,
    )


def _exchange(
    work: StepWork, model: ModelExchange, network: NodeNetwork, nodes: int, parts: int
) -> tuple[float, float]:
    """Seconds of all exchanges of a step, and of those that nothing hides."""
    if model.division == REPLICATED:
        return _replicated_exchange(work, model, network, nodes, model.gradient_bytes / parts)
    return _sharded_exchange(work, model, network, nodes, parts)


def _replicated_exchange(
    work: StepWork, model: ModelExchange, network: NodeNetwork, nodes: int, size: float
) -> tuple[float, float]:
    """Gradients come in the last backward pass, evenly, and travel bucket by bucket as they come."""
    last = work.compute_seconds / work.micro_batches
    backward = last * (1 - FORWARD_SHARE) if model.overlaps else 0.0
    whole, done, ready = 0.0, 0.0, 0.0
    for bucket in _buckets(size, model.bucket_bytes):
        ready += backward * bucket / size
        took = all_reduce_seconds(network, nodes, bucket)
        done, whole = max(done, ready) + took, whole + took
    return whole, min(whole, max(0.0, done - backward))  # of rounding, too, no more than all is exposed


def _buckets(size: float, bucket: float) -> Iterator[float]:
    """Whole buckets, and what is left; no more of them than make a difference."""
    bucket = max(bucket, size / 1000)
    while size > 0:
        yield min(size, bucket)
        size -= bucket


def _sharded_exchange(
    work: StepWork, model: ModelExchange, network: NodeNetwork, nodes: int, parts: int
) -> tuple[float, float]:
    """Each unit is gathered while the one before computes; its gradients are scattered while the next one does."""
    units = max(1, model.units // work.pipeline_stages)
    gather = gather_seconds(network, nodes, model.weight_bytes / parts / units)
    scatter = gather_seconds(network, nodes, model.gradient_bytes / parts / units)
    again = gather if model.division == SHARDED else 0.0
    unit = work.compute_seconds / work.micro_batches / units
    forward, backward = unit * FORWARD_SHARE, unit * (1 - FORWARD_SHARE)
    exposed = gather + scatter  # the first and the last of a pass, beside which nothing is computed
    exposed += (units - 1) * (max(0.0, gather - forward) + max(0.0, again + scatter - backward))
    whole = units * (gather + again + scatter)
    return work.micro_batches * whole, work.micro_batches * min(whole, exposed)

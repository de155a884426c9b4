"""What an exchange among all ranks takes: the cheaper of a ring and a tree, of two protocols, for its size.

The forms are the textbook's (Thakur, Rabenseifner, Gropp 2005; Sanders, Speck, Träff 2009) with the terms of NCCL's
tuner (github.com/NVIDIA/nccl, src/graph/tuning.cc): a start, a latency for each hop, by where it leads, and the bytes
over the slowest link. A ring passes every rank, so its latency grows with their number; a tree's with its logarithm.
"""

from __future__ import annotations

import math

from allranks.planning.links import NodeNetwork

START_SECONDS = 8.4e-6
"""Of any exchange: NCCL's base latency."""
FLAGGED_SHARE, FLAGGED_LATENCY = 0.5, 0.2
"""The protocol for small messages sends a flag with every word: half the rate, and a fifth of the latency of a hop."""


def _ring_latency(network: NodeNetwork, nodes: int, rounds: int) -> float:
    """Seconds of hops: a ring through all ranks crosses from node to node once for each node."""
    hops = nodes * network.ranks_per_node - 1
    remote = nodes - 1
    return rounds * ((hops - remote) * network.local.latency + remote * network.remote.latency)


def _slowest_rate(network: NodeNetwork, nodes: int) -> float:
    """Bytes a second of the slowest link that an exchange needs."""
    rates = [network.local.rate] if network.ranks_per_node > 1 else []
    rates += [network.remote.rate] if nodes > 1 else []
    return min(rates, default=math.inf)


def _cheapest(latency: float, transfer: float) -> float:
    """Of the two protocols."""
    return START_SECONDS + min(latency + transfer, FLAGGED_LATENCY * latency + transfer / FLAGGED_SHARE)


def ring_seconds(network: NodeNetwork, nodes: int, size: float) -> float:
    """An all-reduce of so many bytes in a ring: each rank sends 2 (n - 1) / n of them."""
    ranks = nodes * network.ranks_per_node
    if ranks < 2:
        return 0.0
    transfer = 2 * (ranks - 1) / ranks * size / _slowest_rate(network, nodes)
    return _cheapest(_ring_latency(network, nodes, 2), transfer)


def tree_seconds(network: NodeNetwork, nodes: int, size: float) -> float:
    """An all-reduce in trees over the nodes, with a chain in each: all bytes go up, and down again."""
    if nodes * network.ranks_per_node < 2:
        return 0.0
    up = (network.ranks_per_node - 1) * network.local.latency + math.log2(nodes) * network.remote.latency
    return _cheapest(2 * up, 2 * size / _slowest_rate(network, nodes))


def all_reduce_seconds(network: NodeNetwork, nodes: int, size: float) -> float:
    """The cheaper of ring and tree; 0 for one rank."""
    return min(ring_seconds(network, nodes, size), tree_seconds(network, nodes, size))


def gather_seconds(network: NodeNetwork, nodes: int, size: float) -> float:
    """An all-gather, or a reduce-scatter, of so many bytes in all: half a ring; there is no tree for it."""
    ranks = nodes * network.ranks_per_node
    if ranks < 2:
        return 0.0
    transfer = (ranks - 1) / ranks * size / _slowest_rate(network, nodes)
    return _cheapest(_ring_latency(network, nodes, 1), transfer)

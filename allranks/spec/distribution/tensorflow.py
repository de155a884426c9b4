"""``tensorflow``: one worker on each node, and parameter servers beside them."""

from __future__ import annotations

from dataclasses import replace

from allranks.spec.distribution.kind import DistributionKind, count_words, node_words
from allranks.spec.model import CountOrBinding, Distribution


class _WorkersKind(DistributionKind):
    def scale_fault(self, nodes: int, processes: int, /) -> str:
        return "" if processes == 1 else f"a TensorFlow step has one worker on each node, so {nodes}x1 only."

    def scaled(self, distribution: Distribution, nodes: CountOrBinding, _processes: CountOrBinding, /) -> Distribution:
        return replace(distribution, worker_count=nodes)

    def launch_words(self, distribution: Distribution, nodes: CountOrBinding, /) -> str:
        workers = count_words(nodes if distribution.worker_count is None else distribution.worker_count)
        servers = distribution.parameter_server_count
        more = f" + {count_words(servers)} parameter servers" if servers else ""
        return f"{self.name}, {node_words(nodes)}, {workers} workers{more}"


TENSORFLOW_KIND = _WorkersKind(
    name="tensorflow",
    title="TensorFlow: one worker on each node",
    keys=("worker_count", "parameter_server_count"),
    other_keys="TensorFlow has worker_count, one process on each node.",
)

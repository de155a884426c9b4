"""``pytorch`` and ``mpi``: as many ranks on each node as the YAML says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from allranks.spec.distribution.kind import DistributionKind, count_words, node_words
from allranks.spec.model import CountOrBinding, Distribution


@dataclass(frozen=True)
class _ProcessesKind(DistributionKind):
    keys: tuple[str, ...] = ("process_count_per_instance",)
    other_keys: str = "the number of nodes is resources.instance_count."
    starts_processes: bool = True

    def scale_fault(self, _nodes: int, _processes: int, /) -> str:
        return ""

    def scaled(self, distribution: Distribution, _nodes: CountOrBinding, processes: CountOrBinding, /) -> Distribution:
        return replace(distribution, processes_per_node=processes)

    def launch_words(self, distribution: Distribution, nodes: CountOrBinding, /) -> str:
        processes = count_words(distribution.processes_per_node)
        return f"{self.name}, {node_words(nodes)} x {processes} process{'' if processes == '1' else 'es'}"


PYTORCH_KIND = _ProcessesKind("pytorch", "PyTorch: Azure ML starts the processes of every node")
MPI_KIND = _ProcessesKind("mpi", "MPI: Azure ML starts the processes of every node with mpirun")

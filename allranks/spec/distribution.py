"""The kinds of distribution: how Azure ML starts the ranks of a step; one line of the table for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from allranks.spec.expressions import single_reference
from allranks.spec.needs import CountOrBinding, Distribution

CLOUD_ONLY_DISTRIBUTIONS = ("ray",)


@dataclass(frozen=True)
class DistributionKind:
    """How Azure ML starts the ranks of a step, and what follows from it; as it stands here it is none: one process.

    Attributes:
        name: the YAML's ``type``; empty without a distribution.
        title: the kind in words, for a page.
        keys: what the YAML may say of it beside the type.
        other_keys: what is said of the keys of other kinds.
        starts_processes: whether as many ranks are started on each node as one says, each for a GPU of its own.
    """

    name: str = ""
    title: str = "none: one process"
    keys: tuple[str, ...] = ()
    other_keys: str = ""
    starts_processes: bool = False

    def scale_fault(self, nodes: int, processes: int, /) -> str:
        """Say why a step cannot have this many nodes and processes on each; empty if it can."""
        return "" if (nodes, processes) == (1, 1) else "the step has no distribution, so it runs 1x1 only."

    def scaled(self, distribution: Distribution, _nodes: CountOrBinding, _processes: CountOrBinding, /) -> Distribution:
        """Return the distribution with the counts that follow from the nodes and the processes on each."""
        return distribution

    def launch_words(self, _distribution: Distribution, nodes: CountOrBinding, /) -> str:
        """Write how a step is started, such as ``pytorch, 2 nodes x 2 processes``, or ``<input> processes``."""
        return f"no distribution, {_node_words(nodes)}"


@dataclass(frozen=True)
class _ProcessesKind(DistributionKind):
    """As many ranks on each node as the YAML says."""

    keys: tuple[str, ...] = ("process_count_per_instance",)
    other_keys: str = "the number of nodes is resources.instance_count."
    starts_processes: bool = True

    def scale_fault(self, _nodes: int, _processes: int, /) -> str:
        return ""

    def scaled(self, distribution: Distribution, _nodes: CountOrBinding, processes: CountOrBinding, /) -> Distribution:
        return replace(distribution, processes_per_node=processes)

    def launch_words(self, distribution: Distribution, nodes: CountOrBinding, /) -> str:
        processes = _count_words(distribution.processes_per_node)
        return f"{self.name}, {_node_words(nodes)} x {processes} process{'' if processes == '1' else 'es'}"


@dataclass(frozen=True)
class _WorkersKind(DistributionKind):
    """One worker on each node, and parameter servers beside them."""

    keys: tuple[str, ...] = ("worker_count", "parameter_server_count")
    other_keys: str = "TensorFlow has worker_count, one process on each node."

    def scale_fault(self, nodes: int, processes: int, /) -> str:
        return "" if processes == 1 else f"a TensorFlow step has one worker on each node, so {nodes}x1 only."

    def scaled(self, distribution: Distribution, nodes: CountOrBinding, _processes: CountOrBinding, /) -> Distribution:
        return replace(distribution, worker_count=nodes)

    def launch_words(self, distribution: Distribution, nodes: CountOrBinding, /) -> str:
        workers = _count_words(nodes if distribution.worker_count is None else distribution.worker_count)
        servers = distribution.parameter_server_count
        more = f" + {_count_words(servers)} parameter servers" if servers else ""
        return f"{self.name}, {_node_words(nodes)}, {workers} workers{more}"


_KINDS = (
    _ProcessesKind("pytorch", "PyTorch: Azure ML starts the processes of every node"),
    _ProcessesKind("mpi", "MPI: Azure ML starts the processes of every node with mpirun"),
    _WorkersKind("tensorflow", "TensorFlow: one worker on each node"),
)
_NONE = DistributionKind()
DISTRIBUTION_KINDS: Mapping[str, DistributionKind] = MappingProxyType({kind.name: kind for kind in _KINDS})


def distribution_kind(distribution: Distribution | str | None) -> DistributionKind:
    """Return the kind of a distribution, or of its name; that of none for None and for a name that is not known."""
    name = distribution.type if isinstance(distribution, Distribution) else distribution or ""
    return DISTRIBUTION_KINDS.get(name, _NONE)


def _node_words(nodes: CountOrBinding) -> str:
    """Write a number of nodes; one where the YAML is silent."""
    number = _count_words(nodes)
    return f"{number} node{'' if number == '1' else 's'}"


def _count_words(count: CountOrBinding) -> str:
    """Write a number; a binding as ``<input>``, and 1 where the YAML is silent."""
    reference = single_reference(count)
    if reference is not None and reference.scope == "parent.inputs":
        return f"<{reference.name}>"
    return "1" if count is None else str(count)

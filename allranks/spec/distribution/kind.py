"""What one kind of distribution is asked; as it stands here it is none: one process."""

from __future__ import annotations

from dataclasses import dataclass

from allranks.spec.expressions import single_reference
from allranks.spec.model import CountOrBinding, Distribution


@dataclass(frozen=True)
class DistributionKind:
    """How Azure ML starts the ranks of a step, and what follows from it.

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
        return f"no distribution, {node_words(nodes)}"


def node_words(nodes: CountOrBinding) -> str:
    """Write a number of nodes; one where the YAML is silent."""
    return f"{(number := count_words(nodes))} node{'' if number == '1' else 's'}"


def count_words(count: CountOrBinding) -> str:
    """Write a number; a binding as ``<input>``, and 1 where the YAML is silent."""
    reference = single_reference(count)
    if reference is not None and reference.scope == "parent.inputs":
        return f"<{reference.name}>"
    return "1" if count is None else str(count)

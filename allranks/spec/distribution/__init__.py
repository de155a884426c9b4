"""The kinds of distribution: one line for each, and one file for those that are alike."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from allranks.spec.distribution.kind import DistributionKind
from allranks.spec.distribution.processes import MPI_KIND, PYTORCH_KIND
from allranks.spec.distribution.tensorflow import TENSORFLOW_KIND
from allranks.spec.model import Distribution

DISTRIBUTION_KINDS: Mapping[str, DistributionKind] = MappingProxyType(
    {kind.name: kind for kind in (PYTORCH_KIND, MPI_KIND, TENSORFLOW_KIND)}
)
CLOUD_ONLY_DISTRIBUTIONS = ("ray",)

_NONE = DistributionKind()

__all__ = ["CLOUD_ONLY_DISTRIBUTIONS", "DISTRIBUTION_KINDS", "DistributionKind", "distribution_kind"]


def distribution_kind(distribution: Distribution | str | None) -> DistributionKind:
    """Return the kind of a distribution, or of its name; that of none for None and for a name that is not known."""
    name = distribution.type if isinstance(distribution, Distribution) else distribution or ""
    return DISTRIBUTION_KINDS.get(name, _NONE)

"""What several ranks do together under one name: each brings a value, and each gets its share of the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from shared.distributed.members import Guest
from shared.distributed.wire import Message

MeetingKind: TypeAlias = Literal["join", "barrier", "gather", "collect", "sum", "once"]
LeaderScope: TypeAlias = Literal["node", "job"]
"""Who leads a ``once``: local rank 0 of each node, or rank 0."""


@dataclass(eq=False, slots=True)
class Meeting:
    """Workers (by rank) and parameter servers (from -1 downwards) that bring a value each.

    Attributes:
        scope: of a ``once``; of no meaning to the others.
        served: how many have been answered.
    """

    kind: MeetingKind
    label: str
    scope: LeaderScope = "job"
    values: dict[int, Any] = field(default_factory=dict)
    outcome: object = None
    finished: bool = False
    served: int = 0

    @property
    def failures(self) -> list[Message]:
        """What the leaders of a ``once`` have raised, by rank."""
        if self.kind != "once":
            return []
        return [value for _, value in sorted(self.values.items()) if "error_type" in value]

    def result(self) -> object:
        """What the values result in: computed once, so that every rank gets the same bits.

        Raises:
            ValueError: the ranks gave different numbers of values for a sum.
        """
        in_order = [self.values[place] for place in sorted(self.values)]
        if self.kind == "sum":
            return sum_in_rank_order(self.label, in_order)
        return in_order if self.kind in ("gather", "collect") else None

    def share_of(self, guest: Guest) -> object:
        """What this guest gets: of a ``once`` the first failure of any leader, else what its own leader returned."""
        if self.kind == "collect" and guest.member != ("worker", 0):
            return None
        if self.kind != "once":
            return self.outcome
        leaders: list[Message] = self.failures or [
            value for value in self.values.values() if self.scope == "job" or value["node"] == guest.node
        ]
        return leaders[0]


def sum_in_rank_order(label: str, rows: list[list[float]]) -> list[float]:
    """Column sums in float64, added in the order of the ranks.

    Raises:
        ValueError: the ranks gave different numbers of values.
    """
    lengths = [len(row) for row in rows]
    if len(set(lengths)) > 1:
        odd = next(rank for rank, length in enumerate(lengths) if length != lengths[0])
        raise ValueError(f"{label}: rank {odd} gave {lengths[odd]} number(s), and rank 0 gave {lengths[0]}.")
    totals = [0.0] * lengths[0]
    for row in rows:
        totals = [total + value for total, value in zip(totals, row, strict=True)]
    return totals

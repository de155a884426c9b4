"""Who is connected to the control plane, and the meetings at which each brings a value."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from shared.distributed.launch import NODE_BY_NODE, Launch
from shared.distributed.wire import Message, SharedMessage

HEARTBEAT_OF = "heartbeat of "
"""How the channel of a rank is called on which its heartbeats come; its role follows."""
Member: TypeAlias = tuple[str, int]
"""Role and rank."""
MeetingKind: TypeAlias = Literal["join", "barrier", "gather", "collect", "sum", "max", "any", "once"]
LeaderScope: TypeAlias = Literal["node", "job"]
"""Who leads a ``once``: local rank 0 of each node, or rank 0."""


@dataclass(eq=False, slots=True)
class Guest:
    """Somebody who is connected; a stranger until the greeting was accepted. `where` is its host and process.

    A process may be connected by further `channel`s, at which its threads wait for those of the other ranks; the world
    does not depend on these. It waits for the meeting or value under the key `waiting` (empty while it works) up to the
    `deadline` by the monotonic clock (None: as long as it takes). If it is `closing`, the connection ends once the
    outbox is sent. Whoever gets something into an empty outbox puts itself into `due`, if there is such a list.
    """

    member: Member | None = None
    channel: bool = False
    node: int = 0
    local_rank: int = 0
    where: str = ""
    host: str = ""
    waiting: str = ""
    deadline: float | None = None
    outbox: list[Message] = field(default_factory=list)
    closing: bool = False
    due: list[Guest] | None = None

    def __str__(self) -> str:
        """Format as ``rank 3 (node 1)``."""
        return f"{member_title(self.member)} (node {self.node})" if self.member else "a stranger"

    @property
    def is_rank_0(self) -> bool:
        """Whether it is rank 0, or a channel of it."""
        return self.member is not None and self.member[1] == 0 and self.node == 0 and self.member[0] != "ps"

    @property
    def is_worker(self) -> bool:
        """Whether it is a rank itself, not a channel of one or a parameter server."""
        return self.member is not None and self.member[0] == "worker"

    @property
    def place(self) -> int:
        """Under which a meeting has its value: a worker's rank; servers count from -1 downwards."""
        assert self.member is not None  # noqa: S101  # strangers do not meet
        role, rank = self.member
        return rank if role == "worker" or self.channel else -1 - rank

    def send(self, message: Message) -> None:
        """Answer; whoever was answered waits no longer."""
        self.waiting = ""
        if self.due is not None and not self.outbox:
            self.due.append(self)
        self.outbox.append(message)


@dataclass(eq=False, slots=True)
class Meeting:
    """Workers (by rank) and parameter servers (from -1 downwards) that bring a value each.

    Attributes:
        scope: of a ``once``; of no meaning to the others.
        missing: those without whom it does not end, as long as they have not come.
        guests: who waits for its end.
        served: how many have been answered.
    """

    kind: MeetingKind
    label: str
    scope: LeaderScope
    missing: set[int]
    values: dict[int, Any] = field(default_factory=dict)
    guests: list[Guest] = field(default_factory=list)
    finished: bool = False
    served: int = 0
    _answers: dict[int | str, Message] = field(default_factory=dict)

    def bring(self, place: int, value: object) -> None:
        """Take the value of a rank."""
        self.values[place] = value
        self.missing.discard(place)

    @property
    def failures(self) -> list[Message]:
        """What the leaders of a ``once`` have raised, by rank."""
        if self.kind != "once":
            return []
        return [value for _, value in sorted(self.values.items()) if "error_type" in value]

    def conclude(self) -> None:
        """Find what the values result in: once, so that every rank gets the same bits, and they are encoded once.

        Raises:
            ValueError: the ranks gave different numbers of values for a sum.
            TypeError: or what cannot be compared.
        """
        in_order = [self.values[place] for place in sorted(self.values)]
        if self.kind == "once":
            answers: dict[int | str, Any] = (
                {"all": self.failures[0]}
                if self.failures
                else {"all" if self.scope == "job" else value["node"]: value for value in in_order}
            )
        elif self.kind == "collect":
            answers = {"all": None, "main": in_order}
        else:
            answers = {"all": _RESULTS[self.kind](self.label, in_order)}
        self._answers = {who: SharedMessage(ok=answer) for who, answer in answers.items()}
        self.finished = True

    def answer_to(self, guest: Guest) -> Message:
        """What this guest gets: of a ``once`` the first failure of any leader, else what its own leader returned."""
        if self.kind == "collect" and guest.place == 0:
            return self._answers["main"]
        return self._answers["all"] if "all" in self._answers else self._answers[guest.node]


def member_title(member: Member) -> str:
    """Such as ``rank 3`` or ``ps 0``."""
    return f"{'rank' if member[0] == 'worker' else member[0]} {member[1]}"


def shared_facts(launch: Launch) -> Message:
    """What all members have to agree on."""
    names = ("world_size", "num_nodes", "num_ps", "launcher")
    return {name: getattr(launch, name) for name in names}


def hello_message(launch: Launch, token: str, channel: str = "") -> Message:
    """With what a process asks to be let in; a `channel` is the name of a further connection of it."""
    return {
        "op": "hello",
        "token": token,
        "role": channel or launch.role,
        "channel": bool(channel),
        "rank": launch.rank,
        "node": launch.node_rank,
        "local_rank": launch.local_rank,
        "where": f"process {os.getpid()} on {socket.gethostname()}",
        "host": socket.gethostname(),
        "world": shared_facts(launch),
    }


def find_misplaced_ranks(members: Mapping[Member, Guest]) -> str:
    """Why the nodes that the workers think they are on cannot be right; empty if they can.

    A rank knows its own numbers alone. Open MPI may count local ranks in any order, so that only together it shows
    whether it has numbered the ranks node by node, as was assumed: else a node has one local rank twice, or what is
    taken for a node are several hosts. (Several nodes on one host are none of this function's business.)
    """
    nodes: dict[int, list[tuple[int, Guest]]] = {}
    for (role, rank), guest in sorted(members.items(), key=lambda item: item[0]):
        if role == "worker":
            nodes.setdefault(guest.node, []).append((rank, guest))
    for node, ranks in nodes.items():
        first, leader = ranks[0]
        permuted = [guest.local_rank for _, guest in ranks] != list(range(len(ranks)))
        taken: dict[int, int] = {}
        for rank, guest in ranks:
            other = taken.setdefault(guest.local_rank, rank)
            found = f"rank {other} and rank {rank} are both local rank {guest.local_rank}" if other != rank else ""
            if permuted and guest.host != leader.host:
                found = f"rank {first} is on the host {leader.host} and rank {rank} on {guest.host}"
            if found:
                return f"Node {node} cannot be one node: {found}. {NODE_BY_NODE}"
    return ""


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


_RESULTS: dict[MeetingKind, Callable[[str, list[Any]], object]] = {
    "join": lambda _label, _values: None,
    "barrier": lambda _label, _values: None,
    "gather": lambda _label, values: values,
    "sum": sum_in_rank_order,
    "max": lambda _label, values: max(values),
    "any": lambda _label, values: any(values),
}
"""What all get, by kind, of a label and the values in the order of the ranks."""

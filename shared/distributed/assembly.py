"""Who is here and at which meeting: the rules of the control plane, without a socket.

Everything that ranks do together is a *meeting*: each brings a value, and when all that are needed have come, each gets
the outcome. A member that is lost without a goodbye is dead; that, a failure and a time-out break the world: whoever
waits is told at once, and whoever asks later too.
"""

from __future__ import annotations

import hmac
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from shared.distributed.errors import Refusal, UnsavedError, print_line
from shared.distributed.hang import HangDiagnosis, Report
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


_RANKS_SHOWN = 16


class Assembly:
    """One world, seen from its main rank.

    Attributes:
        world_id: drawn anew for each start, so that names in a store that outlives a restart never clash.
    """

    def __init__(self, launch: Launch, token: str) -> None:
        self.world_id = secrets.token_hex(8)
        self._launch = launch
        self._token = token
        self._members: dict[Member, Guest] = {}
        self._here = 0  # members that are no channel
        self._left: set[Member] = set()
        self._left_workers: set[int] = set()
        self._meetings: dict[str, Meeting] = {}
        self._meeting_workers = 0  # those that wait in a meeting
        self._values: dict[str, Message] = {}
        self._getters: dict[str, list[Guest]] = {}
        self._earliest = math.inf  # no wait reaches its limit before this
        self._complete = False
        self._broken: Message | None = None
        self._hangs = HangDiagnosis()

    @property
    def done(self) -> bool:
        """Whether everybody has left; after a failed start, others may still come who should hear why."""
        return not self._here and (self._complete or self._broken is None)

    def handle(self, guest: Guest, message: Message) -> None:
        """Act on one message; the answers go to the outboxes.

        Raises:
            KeyError, TypeError, ValueError: it is not one of ours.
        """
        operation = message["op"]
        if guest.member is None:
            self._greet(guest, message)
        elif operation in ("bye", "fail", "refuse"):
            self._leave(guest, guest.member, message)
        elif self._broken is not None:
            guest.send(self._broken)
        elif operation == "beat":
            self._take_heartbeat(guest, message)
        elif operation == "meet":
            self._meet(guest, message)
        elif operation == "set":
            self._values[message["key"]] = SharedMessage(ok=message["value"])
            guest.send({"ok": None})
            self._answer_gets(message["key"])
        elif operation == "get":
            self._wait(guest, message["key"], message["timeout"])
            self._getters.setdefault(message["key"], []).append(guest)
            self._answer_gets(message["key"])

    def lose(self, guest: Guest) -> None:
        """The connection has closed; a member that has not said goodbye is dead."""
        if guest.member is None or self._members.get(guest.member) is not guest:
            return
        del self._members[guest.member]
        self._here -= not guest.channel
        if guest.member not in self._left and not guest.channel:
            self._break("peer", f"{guest} has died: its process ended without a word. Its own log says why.")

    def next_deadline(self) -> float | None:
        """When ``expire`` may have something to do, and not later, by the monotonic clock."""
        return None if self._earliest == math.inf else self._earliest

    def expire(self, now: float) -> None:
        """End the waits that have reached their limit."""
        if self._earliest > now:  # so that all are looked through once per time-out, and not at each message
            return
        for guest in list(self._members.values()):
            if not guest.waiting or guest.deadline is None or guest.deadline > now:
                continue
            meeting = self._meetings.get(guest.waiting)
            if meeting is None:
                guest.send(_error("timeout", f"{guest} waited in vain for {guest.waiting!r}."))
            else:
                missing = self._describe(sorted(meeting.missing))
                self._break("timeout", f"{meeting.label}: timed out waiting for {missing}.")
        waiting = (guest.deadline for guest in self._members.values() if guest.waiting and guest.deadline is not None)
        self._earliest = min(waiting, default=math.inf)

    # ---- coming and going

    def _greet(self, guest: Guest, message: Message) -> None:
        """Let a member in, or say why not: another job, another world, or a place that is taken."""
        known = hmac.compare_digest(str(message["token"]), self._token)
        if message["op"] == "whose" and known:
            _turn_away(guest, "ours", "the control plane of this job answers there")
            return
        if message["op"] != "hello" or not known:
            _turn_away(guest, "stranger", "the control plane of another job answers there")
            return
        member = (str(message["role"]), int(message["rank"]))
        guest.node, guest.local_rank, guest.where = message["node"], message["local_rank"], str(message["where"])
        guest.host, guest.channel = str(message["host"]), message["channel"] is True
        problem = self._difference(member, guest, message["world"])
        kind = "world" if problem else "stale"  # a member that comes twice may be meeting an earlier attempt's server
        problem = problem or self._collision(member, guest)
        if problem and not self._complete:
            self._break("world", problem)
        if self._broken is not None:
            fatal = self._broken["error"] in ("world", "refused")
            _turn_away(guest, self._broken["error"] if fatal else "stale", self._broken["message"])
        elif problem:
            _turn_away(guest, kind, problem)
        else:
            guest.member = member
            self._members[member] = guest
            self._here += not guest.channel
            guest.send({"ok": self.world_id})

    def _difference(self, member: Member, guest: Guest, theirs: Message) -> str:
        ours = shared_facts(self._launch)
        names = [name for name in ours if theirs.get(name) != ours[name]]
        if not names:
            return ""
        there = ", ".join(f"{name}={theirs.get(name)}" for name in names)
        here = ", ".join(f"{name}={ours[name]}" for name in names)
        return f"The ranks see different worlds: {there} on {member_title(member)} ({guest.where}), {here} on rank 0."

    def _collision(self, member: Member, guest: Guest) -> str:
        holder = self._members.get(member)
        if holder is not None:
            return f"{member_title(member)} is there twice: {holder.where} and {guest.where}."
        return f"{member_title(member)} has left this world already." if member in self._left else ""

    def _leave(self, guest: Guest, member: Member, message: Message) -> None:
        """A member leaves: because it is done, because it failed, or because what was asked for cannot be."""
        self._left.add(member)
        if member[0] == "worker":
            self._left_workers.add(member[1])
        if message["op"] == "bye":
            guest.closing = True
            for key, meeting in list(self._meetings.items()):
                self._check(key, meeting)
            return
        cause = self._broken["message"] if self._broken is not None else None
        if message["op"] == "fail":
            self._break("peer", f"{guest} failed with {message['type']}: {message['message']}")
        elif self._broken is None or self._broken["error"] not in (Refusal.kind, UnsavedError.kind):
            self._broken = None  # a refusal explains whatever else has happened
            print_line(f"error: {message['message']}")
            self._break(message["kind"], message["message"])
        guest.send({"ok": cause})

    def _break(self, kind: str, text: str) -> None:
        """Tell everyone, now, and everyone who asks, from now on; the first cause stays.

        To those who do not wait for an answer it comes as news: they may stand in a collective that never ends.
        """
        if self._broken is None:
            self._broken = _error(kind, text)
            news = SharedMessage(self._broken, news=True)
            for member, guest in self._members.items():
                if guest.waiting:
                    guest.send(self._broken)
                elif member not in self._left:
                    guest.send(news)

    # ---- hangs

    def _take_heartbeat(self, guest: Guest, message: Message) -> None:
        """Keep it; at rank 0's own, find out whether a rank hangs."""
        assert guest.member is not None  # noqa: S101  # strangers have no heart
        member, now = (guest.member[0].removeprefix(HEARTBEAT_OF), guest.member[1]), time.monotonic()
        self._hangs.record(member, Report(f"{member_title(member)} (node {guest.node})", **message["state"]), now)
        guest.send({"ok": None})
        if member == ("worker", 0) and (found := self._hangs.find(self._members.keys() - self._left, now)):
            self._break("stalled", found)

    # ---- meetings

    def _meet(self, guest: Guest, message: Message) -> None:
        key = message["key"]
        meeting = self._meetings.get(key)
        if meeting is None:
            kind, scope = message["kind"], message["scope"]
            meeting = Meeting(kind, message["label"], scope, self._needed(kind, scope))
            self._meetings[key] = meeting
        self._wait(guest, key, message["timeout"])
        meeting.guests.append(guest)
        self._meeting_workers += guest.is_worker
        if message["brings"]:
            meeting.bring(guest.place, message["value"])
        self._check(key, meeting)
        if not guest.channel:
            self._check_standstill()

    def _wait(self, guest: Guest, key: str, timeout: float | None) -> None:
        guest.waiting = key
        guest.deadline = None if timeout is None else time.monotonic() + timeout
        self._earliest = min(self._earliest, math.inf if guest.deadline is None else guest.deadline)

    def _needed(self, kind: MeetingKind, scope: LeaderScope) -> set[int]:
        """Those without whom a meeting does not end."""
        if kind == "once" and scope == "job":
            return {0}
        if kind == "once":
            guests = self._members.items()
            return {rank for (role, rank), guest in guests if role == "worker" and guest.local_rank == 0}
        workers = set(range(self._launch.world_size))
        return workers | {-1 - rank for rank in range(self._launch.num_ps)} if kind == "join" else workers

    def _check(self, key: str, meeting: Meeting) -> None:
        """End the meeting if all have come, and answer those who wait; find out if somebody never will."""
        if not meeting.finished:
            if left := sorted(meeting.missing & self._left_workers):
                self._break("peer", f"{meeting.label}: {self._describe(left)} has left the world already.")
            if meeting.missing and not meeting.failures:
                return
            if meeting.kind == "join" and (wrong := find_misplaced_ranks(self._members)):
                self._break("world", wrong)
                return
            try:
                meeting.conclude()
            except (ValueError, TypeError) as error:
                self._break("usage", str(error))
                return
            self._complete = self._complete or meeting.kind == "join"
        waiting, meeting.guests = meeting.guests, []
        for guest in waiting:
            if guest.waiting == key:
                meeting.served += 1
                self._meeting_workers -= guest.is_worker
                guest.send(meeting.answer_to(guest))
        if meeting.served == self._launch.world_size + (self._launch.num_ps if meeting.kind == "join" else 0):
            del self._meetings[key]

    def _answer_gets(self, key: str) -> None:
        if key in self._values:
            for guest in self._getters.pop(key, ()):
                if guest.waiting == key:
                    guest.send(self._values[key])

    def _check_standstill(self) -> None:
        """If every worker waits in a meeting, none of these can end any more: say so now, not at the time-out."""
        if self._complete and self._meeting_workers == self._launch.world_size > 1:
            places = self._describe(range(self._launch.world_size))
            self._break("usage", f"The ranks wait for each other in different places: {places}.")

    def _describe(self, places: Iterable[int]) -> str:
        """Name ranks, and where those that are here wait instead."""
        texts = []
        for place in places:
            member: Member = ("worker", place) if place >= 0 else ("ps", -1 - place)
            guest = self._members.get(member)
            instead = self._meetings.get(guest.waiting) if guest else None
            texts.append(member_title(member) + (f" (in {instead.label})" if instead else ""))
        more = f" and {len(texts) - _RANKS_SHOWN} more" if len(texts) > _RANKS_SHOWN else ""
        return ", ".join(texts[:_RANKS_SHOWN]) + more


def _turn_away(guest: Guest, kind: str, text: str) -> None:
    guest.closing = True
    guest.send(_error(kind, text))


def _error(kind: str, text: str) -> Message:
    return SharedMessage(error=kind, message=text)

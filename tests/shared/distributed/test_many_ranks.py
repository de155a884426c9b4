"""What a world of many ranks costs rank 0, counted: messages, bytes, and what its server computes for each of them."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from shared.distributed import World, detect, joining
from shared.distributed.control import SocketControl
from shared.distributed.wire import Message, MessageDecoder
from shared.training.core.agreement import check_same_weights
from tests.helpers import free_port
from tests.local.support import wait_for

NODE = 8


class Counts:
    """What the server did until now: bytes to and from it, messages to it, and Python's instructions."""

    def __init__(self) -> None:
        self.bytes = self.messages = self.instructions = 0

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event == "call" and threading.current_thread().name != "allranks-control":
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += event == "opcode"
        return self.trace


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counts]:
    """Count at the sockets of the server, which are those that were accepted, and in its thread."""
    counts = Counts()

    class Counting(socket.socket):
        def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:  # noqa: A002
            super().__init__(family, type, proto, fileno)
            self.is_counted = fileno is not None and self.family != socket.AF_UNIX

        def send(self, data: Any, flags: int = 0) -> int:
            sent = super().send(data, flags)
            counts.bytes += sent * self.is_counted
            return sent

        def recv(self, size: int, flags: int = 0) -> bytes:
            data = super().recv(size, flags)
            counts.bytes += len(data) * self.is_counted
            return data

    feed = MessageDecoder.feed

    def count_fed(decoder: MessageDecoder, data: bytes) -> Iterator[Message]:
        for message in feed(decoder, data):
            counts.messages += threading.current_thread().name == "allranks-control"
            yield message

    monkeypatch.setattr(socket, "socket", Counting)
    monkeypatch.setattr(MessageDecoder, "feed", count_fed)
    threading.settrace(counts.trace)
    try:
        yield counts
    finally:
        threading.settrace(None)  # type: ignore[arg-type]


class Ranks:
    """Ranks as threads, each with the client of a rank."""

    def __init__(self, count: int) -> None:
        port = str(free_port())
        self.count = count
        self._environs = [
            {
                "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank % NODE),
                "NODE_RANK": str(rank // NODE), "AZUREML_NODE_COUNT": str(count // NODE),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            }
            for rank in range(count)
        ]  # fmt: skip
        self._worlds: dict[int, World] = {}

    def join(self) -> None:
        """All join the world."""

        def enter(rank: int) -> None:
            launch = detect(self._environs[rank])
            control = joining.join_world(launch, self._environs[rank], 60)
            assert isinstance(control, SocketControl)
            self._worlds[rank] = World(launch, control, None, 60)

        self._on_all(enter)

    def do(self, function: Callable[[World], object]) -> list[object]:
        """What the function gives on each."""
        found: dict[int, object] = {}
        self._on_all(lambda rank: found.__setitem__(rank, function(self._worlds[rank])))
        return [found[rank] for rank in range(self.count)]

    def leave(self) -> None:
        """All leave, rank 0 last."""
        for rank in reversed(range(self.count)):
            if rank in self._worlds:
                self._worlds[rank]._control.leave(5)

    def _on_all(self, function: Callable[[int], object]) -> None:
        errors: list[BaseException] = []

        def guarded(rank: int) -> None:
            sys.settrace(None)
            try:
                function(rank)
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


OPERATIONS: dict[str, Callable[[World], object]] = {
    "barrier": lambda world: world.barrier("b"),
    "once": lambda world: world.once(lambda: 1, name="o", scope="job"),
    "once per node": lambda world: world.once(lambda: 1, name="o"),
    "any": lambda world: world.any(world.rank == 3, "a"),
    "max": lambda world: world.max(world.rank, "m"),
    "sum": lambda world: world.sum([1.0], "s"),
    "collect": lambda world: world.collect(world.rank, "c"),
    "announcement": lambda world: world.announce("x") if world.is_main else world.wait_for_announcement("x"),
}


def costs_of(count: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, float, float]]:
    """Messages, bytes and instructions for each rank, by operation."""
    found = {}
    with monkeypatch.context() as patched, counted(patched) as counts:
        ranks = Ranks(count)

        def measure(name: str, function: Callable[[], object]) -> None:
            before = counts.messages, counts.bytes, counts.instructions
            function()
            after = counts.messages, counts.bytes, counts.instructions
            found[name] = tuple((new - old) / count for old, new in zip(before, after, strict=True))

        try:
            measure("join", lambda: (ranks.join(), wait_for(lambda: counts.messages == 3 * count)))
            ranks.do(OPERATIONS["barrier"])  # after the answer to the last sentry's greeting, for which nobody waits
            for name, function in OPERATIONS.items():
                measure(name, lambda function=function: ranks.do(function))
            assert ranks.do(OPERATIONS["any"]) == [True] * count
            assert ranks.do(OPERATIONS["max"]) == [count - 1] * count
            measure("weights", lambda: ranks.do(lambda world: check_same_weights(world, [("w", "0")], 1)))
        finally:
            ranks.leave()
    return found  # type: ignore[return-value]


LARGE = [128, pytest.param(512, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("count", LARGE)
def test_what_a_rank_costs_rank_0_does_not_grow_with_their_number(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = costs_of(16, monkeypatch), costs_of(count, monkeypatch)
    for name, (messages, size, instructions) in many.items():
        assert messages <= (4 if name == "join" else 2), name
        assert size < 1.2 * few[name][1] + 60, f"{name}: {size:.0f} bytes a rank, {few[name][1]:.0f} where they are few"
        assert instructions < 1.6 * few[name][2] + 500, f"{name}: {instructions:.0f}, {few[name][2]:.0f} instructions"

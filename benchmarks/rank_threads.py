"""A world's ranks as threads of few processes, which call the product's own code, and what their sockets carry."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from shared.checkpoint.reading import checkpoints_to_try
from shared.checkpoint.saving import CheckpointEngine
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import World, init, liveness

NODE = 8
FORK = multiprocessing.get_context("fork")


class Tally:
    """What went over the sockets of this process: messages and bytes, on the side of the server and of its clients."""

    def __init__(self) -> None:
        self.counts = {"server": [0, 0], "client": [0, 0]}


TALLY = Tally()


class FrameCounter:
    """Counts the messages of one direction of a stream: a length of four bytes, then as many."""

    def __init__(self, side: str) -> None:
        self._count = TALLY.counts[side]
        self._head, self._rest = b"", 0

    def feed(self, data: bytes | memoryview) -> None:
        """Count what was sent or received."""
        self._count[1] += len(data)
        view = memoryview(data)
        while view:
            if self._rest == 0:
                wanted = 4 - len(self._head)
                self._head, view = self._head + bytes(view[:wanted]), view[wanted:]
                if len(self._head) < 4:
                    return
                self._rest, self._head = int.from_bytes(self._head, "big"), b""
            taken = min(self._rest, len(view))
            view, self._rest = view[taken:], self._rest - taken
            self._count[0] += self._rest == 0


class CountingSocket(socket.socket):
    """A socket that counts what goes through it; one that was accepted is the server's."""

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:  # noqa: A002
        super().__init__(family, type, proto, fileno)
        side = "client" if fileno is None else "server"
        self._counted = None if self.family == socket.AF_UNIX else (FrameCounter(side), FrameCounter(side))

    def send(self, data: Any, flags: int = 0) -> int:
        """Send, and count what was taken."""
        sent = super().send(data, flags)
        if self._counted is not None:
            self._counted[0].feed(memoryview(data)[:sent])
        return sent

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all, and count it."""
        if self._counted is not None:
            self._counted[0].feed(data)
        super().sendall(data, flags)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and count it."""
        data = super().recv(size, flags)
        if self._counted is not None:
            self._counted[1].feed(data)
        return data


class RankEnviron(MutableMapping[str, str]):
    """``os.environ`` as each thread's own, as it is each rank's."""

    def __init__(self) -> None:
        self._common, self._local = dict(os.environ), threading.local()

    def _own(self) -> dict[str, str]:
        if not hasattr(self._local, "values"):
            self._local.values = dict(self._common)
        values: dict[str, str] = self._local.values
        return values

    def __getitem__(self, name: str) -> str:
        """As os.environ."""
        return self._own()[name]

    def __setitem__(self, name: str, value: str) -> None:
        """As os.environ."""
        self._own()[name] = value

    def __delitem__(self, name: str) -> None:
        """As os.environ."""
        del self._own()[name]

    def __iter__(self) -> Iterator[str]:
        """As os.environ."""
        return iter(self._own())

    def __len__(self) -> int:
        """As os.environ."""
        return len(self._own())


def variables_of(rank: int, size: int, port: int) -> dict[str, str]:
    """What Azure ML tells a rank of a PyTorch job."""
    return {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank % NODE), "NODE_RANK": str(rank // NODE),
        "AZUREML_NODE_COUNT": str(size // NODE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


class Rank(threading.Thread):
    """One rank, which does what its process is told."""

    def __init__(self, number: int, size: int, port: int, folder: Path) -> None:
        super().__init__(name=f"rank {number}", daemon=True)
        self.number, self._size, self._port, self._folder = number, size, port, folder
        self._wanted: tuple[str, int] | None = None
        self._asked, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._stack = ExitStack()
        self._engine: CheckpointEngine | None = None
        self.times = (0.0, 0.0)
        self.error: BaseException | None = None

    def ask(self, operation: str, number: int) -> None:
        """Have it begin an operation."""
        self._wanted = operation, number
        self._asked.release()

    def wait(self) -> None:
        """Until it has it behind itself."""
        self._done.acquire()

    def run(self) -> None:
        """Do what is asked for, up to the end of init."""
        os.environ.update(variables_of(self.number, self._size, self._port))
        operation = ""
        while operation != "end of init":
            self._asked.acquire()
            assert self._wanted is not None
            operation, number = self._wanted
            began = time.monotonic()
            try:
                self._do(operation, number)
            except BaseException as error:  # noqa: BLE001  # told to the process that waits
                self.error = error
            self.times = began, time.monotonic()
            self._done.release()

    def _do(self, operation: str, number: int) -> None:
        if operation == "init":
            self.world: World = self._stack.enter_context(init())
        elif operation == "end of init":
            if self._engine is not None:
                self._engine.close()
            self._stack.close()
        else:
            OPERATIONS[operation](self, number)

    def save(self, number: int) -> None:
        """Save a checkpoint, of which each rank has a part, and wait until it is one."""
        if self._engine is None:
            self._engine = CheckpointEngine(self.world, self._folder, timedelta(minutes=10))
        part = ShardPart.whole(f"part {self.number}", np.full(16, number, np.float32))
        self._engine.save(number, [part], {"epoch": number}, {"generators": self.number})
        self._engine.wait()
        assert self._engine.failure is None

    def find(self) -> None:
        """Find the newest checkpoint that is whole for all."""
        assert next(checkpoints_to_try(self.world, self._folder, None, whole=True)).is_dir()

    def check_gather(self, number: int) -> None:
        """Gather a number of each rank."""
        assert self.world.gather(number + self.number, "numbers")[-1] == number + self._size - 1


def _is_true(found: object) -> None:
    assert found is True


OPERATIONS: dict[str, Callable[[Rank, int], object]] = {
    "barrier": lambda rank, _: rank.world.barrier("here"),
    "once": lambda rank, number: rank.world.once(lambda: number, name="value", scope="job"),
    "once per node": lambda rank, number: rank.world.once(lambda: number, name="value"),
    "any": lambda rank, _: _is_true(rank.world.any(rank.number == 3, "flag")),
    "sum": lambda rank, number: rank.world.sum([number, 1.0], "numbers"),
    "collect": lambda rank, number: rank.world.collect(number, "values"),
    "gather": Rank.check_gather,
    "save": Rank.save,
    "find newest": lambda rank, _: rank.find(),
}


def serve_ranks(numbers: range, size: int, port: int, folder: Path, line: Connection) -> None:
    """Be the process of some ranks: do each operation that is asked for, and say when, and what it cost."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    socket.socket = CountingSocket  # type: ignore[misc]
    os.environ = RankEnviron()  # type: ignore[assignment]  # noqa: B003  # each thread is a rank
    liveness.Heartbeat.start = lambda _: None  # type: ignore[method-assign, assignment]  # it would end the process
    threading.stack_size(256 << 10)
    sys.setswitchinterval(0.1)  # each thread that waits for Python's lock wakes up so often: 1,024 did nothing else
    ranks = [Rank(number, size, port, folder) for number in numbers]
    for rank in ranks:
        rank.start()
    while True:
        operation, number = line.recv()
        if operation == "tally":
            line.send(snapshot())
            continue
        for rank in ranks:
            rank.ask(operation, number)
        for rank in ranks:
            rank.wait()
        errors = [f"{rank.name}: {rank.error!r}" for rank in ranks if rank.error is not None]
        line.send((min(rank.times[0] for rank in ranks), max(rank.times[1] for rank in ranks), errors[:3]))
        if operation == "end of init":
            line.send(snapshot())  # of what went on until then, as far as it is known: the server's thread has ended
            os._exit(0)


def snapshot() -> dict[str, Any]:
    """What this process has sent and received until now, and what the server's thread has computed."""
    server = next((thread for thread in threading.enumerate() if thread.name == "allranks-control"), None)
    clock = time.pthread_getcpuclockid(server.ident or 0) if server is not None else None
    return {
        **{side: tuple(counts) for side, counts in TALLY.counts.items()},
        "seconds": 0.0 if clock is None else time.clock_gettime(clock),
    }

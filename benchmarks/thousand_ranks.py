"""What ranks do together, as their number grows to thousands: time, messages and bytes, over real sockets.

    python benchmarks/thousand_ranks.py

Each rank is a thread that calls the product's own `init`, `World` and checkpoint engine, 48 ranks in a process, without
heartbeats; rank 0 has a process for itself. The environment of a thread is that of
its rank, on nodes of 8, with Azure ML's variables. Bytes and messages are counted where the sockets send and receive,
on both sides; the time of an operation is from the first rank that begins it to the last that has it behind itself,
with all of them on the cores of one machine; `server_seconds` is the processor's time of the thread in rank 0 that
serves them. Checkpoints are written to memory: how fast storage is, is not the question here. The command fails where
an operation breaks its limit.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rank_threads import FORK, OPERATIONS, serve_ranks, variables_of
from side_by_side import keep

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared.distributed import detect

SIZES = (8, 64, 256, 1024)
IN_A_PROCESS = 48
ROUNDS = 3
WITH_FILES = ("save", "find newest")  # once: the files of all nodes' ranks are made and read by one machine
IDLE_SECONDS = 3.0
MESSAGES_LIMIT = 3.0  # x n log2 n, of each operation
BYTES_LIMIT = 600.0  # x n log2 n, of each operation but `gather`, whose outcome is a list of n for each of n ranks
BARRIER_LIMIT = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation of all ranks takes: seconds in all, and of the server's thread; at rank 0, and in all ranks."""

    seconds: float
    server_seconds: float
    messages: int
    bytes_of_rank_0: int
    bytes_of_others: int


class Hosts:
    """The processes of a world."""

    def __init__(self, size: int, folder: Path) -> None:
        port = 12_000 + 2 * (os.getpid() % 10_000)  # below those that connections are given
        ranges = [range(1)]
        ranges += [range(first, min(first + IN_A_PROCESS, size)) for first in range(1, size, IN_A_PROCESS)]
        self._lines: list[Connection] = []
        for numbers in ranges:
            ours, theirs = FORK.Pipe()
            FORK.Process(target=serve_ranks, args=(numbers, size, port, folder, theirs), name="ranks").start()
            theirs.close()
            self._lines.append(ours)

    def measure(self, operation: str, number: int = 0) -> Cost:
        """Do an operation on all ranks."""
        before = self._tally()
        for line in self._lines:
            line.send((operation, number))
        said = [line.recv() for line in self._lines]
        errors = [error for *_, found in said for error in found]
        assert not errors, (operation, errors[:3])
        seconds = max(end for _, end, _ in said) - min(begin for begin, *_ in said)
        if operation == "end of init":
            return self._cost(seconds, before, [line.recv() for line in self._lines])
        return self._cost(seconds, before)

    def measure_idle(self) -> Cost:
        """All is well, and nobody does anything together."""
        before = self._tally()
        time.sleep(IDLE_SECONDS)
        return self._cost(IDLE_SECONDS, before)

    def _tally(self) -> list[dict[str, Any]]:
        for line in self._lines:
            line.send(("tally", 0))
        return [line.recv() for line in self._lines]

    def _cost(self, seconds: float, before: list[dict[str, Any]], after: list[dict[str, Any]] | None = None) -> Cost:
        after = after or self._tally()

        def grown(place: int, side: str, number: int) -> int:
            found: int = after[place][side][number] - before[place][side][number]
            return found

        return Cost(
            round(seconds, 4),
            round(max(0.0, after[0]["seconds"] - before[0]["seconds"]), 4),
            grown(0, "server", 0),
            grown(0, "server", 1),
            sum(grown(place, "client", 1) for place in range(1, len(after))),
        )


def measure_detect(size: int) -> Cost:
    """All ranks find their place in their variables, in turn."""
    environs = [variables_of(rank, size, 29500) for rank in range(size)]
    began = time.perf_counter()
    launches = [detect(environ) for environ in environs]
    seconds = time.perf_counter() - began
    assert [launch.rank for launch in launches] == list(range(size))
    return Cost(round(seconds, 4), 0.0, 0, 0, 0)


def measure_world(size: int) -> dict[str, Cost]:
    """All operations of one world, each in its median."""
    costs = {"detect": measure_detect(size)}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        hosts = Hosts(size, Path(folder, "checkpoints"))
        try:
            costs["init"] = hosts.measure("init")
            for operation in OPERATIONS:
                rounds = 1 if operation in WITH_FILES else ROUNDS
                found = [hosts.measure(operation, number) for number in range(1, 1 + rounds)]
                costs[operation] = sorted(found, key=lambda cost: cost.seconds)[rounds // 2]
                print(f"{size:5d} {operation:14s} {costs[operation]}", flush=True)
            costs["idle"] = hosts.measure_idle()
            costs["end of init"] = hosts.measure("end of init")
        except BaseException:
            for process in multiprocessing.active_children():
                process.kill()
            raise
        for process in multiprocessing.active_children():
            process.join()
    return costs


def exponent(points: list[tuple[int, float]]) -> float | None:
    """The power of n with which a figure grows: the slope of a line through its logarithms."""
    found = [(math.log(n), math.log(value)) for n, value in points if value > 0]
    if len(found) < 2:
        return None
    return round(statistics.linear_regression([x for x, _ in found], [y for _, y in found]).slope, 2)


def broken_limits(size: int, costs: dict[str, Cost]) -> list[str]:
    """Where an operation takes more than it may."""
    unit = size * math.log2(size)
    found = []
    for name, cost in costs.items():
        if cost.messages > MESSAGES_LIMIT * unit:
            found.append(f"{name} of {size} ranks: {cost.messages} messages, limit {MESSAGES_LIMIT * unit:.0f}")
        total = cost.bytes_of_rank_0
        if name != "gather" and total > BYTES_LIMIT * unit:
            found.append(f"{name} of {size} ranks: {total} bytes, limit {BYTES_LIMIT * unit:.0f}")
    if costs["barrier"].seconds > BARRIER_LIMIT:
        found.append(f"barrier of {size} ranks: {costs['barrier'].seconds} s, limit {BARRIER_LIMIT}")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="world sizes, multiples of 8")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    worlds = {}
    for size in args.sizes:
        worlds[size] = measure_world(size)
        for name in sorted(worlds[size].keys() - OPERATIONS.keys()):
            print(f"{size:5d} {name:14s} {worlds[size][name]}", flush=True)
    operations = list(worlds[args.sizes[0]])
    growth = {
        name: {
            field: exponent([(size, getattr(costs[name], field)) for size, costs in worlds.items()])
            for field in ("seconds", "server_seconds", "messages", "bytes_of_rank_0")
        }
        for name in operations
    }
    table = {
        str(size): {name: {f: getattr(cost, f) for f in Cost.__slots__} for name, cost in costs.items()}
        for size, costs in worlds.items()
    }
    keep("thousand_ranks", [], exponents=growth, worlds=table)
    if broken := [line for size, costs in worlds.items() for line in broken_limits(size, costs)]:
        raise SystemExit("\n".join(broken))


if __name__ == "__main__":
    main()

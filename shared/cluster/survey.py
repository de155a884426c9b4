"""What was found out about a cluster, and what is wrong with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RankPair:
    """Two ranks that exchanged a megabyte; ``error`` says why they could not."""

    first: int
    second: int
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class AllReduce:
    """An all-reduce of one size.

    Attributes:
        size: bytes on each rank.
        seconds: median, on the slowest rank.
        bus_gbytes_per_second: 2 (n - 1) / n x size / seconds, in 1e9 bytes: what a ring moves over each link, and thus
            comparable between numbers of ranks (the definition of nccl-tests).
    """

    size: int
    seconds: float
    bus_gbytes_per_second: float

    @classmethod
    def of(cls, size: int, seconds: float, world_size: int) -> AllReduce:
        """From the time that it took."""
        return cls(size, seconds, 2 * (world_size - 1) / world_size * size / seconds / 1e9 if seconds > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class ClusterSurvey:
    """Everything that was found out; ``machines`` holds the facts of each rank, by rank."""

    transport: str
    machines: Sequence[dict[str, Any]]
    pairs: Sequence[RankPair]
    all_reduce: Sequence[AllReduce]
    problems: Sequence[str]

    @property
    def rank_count(self) -> str:
        """``1 rank``, ``16 ranks``."""
        return f"{len(self.machines)} rank{'' if len(self.machines) == 1 else 's'}"

    @property
    def best(self) -> float:
        """The highest bus bandwidth of any size, in 1e9 bytes per second."""
        return max((one.bus_gbytes_per_second for one in self.all_reduce), default=0.0)

    @property
    def latency(self) -> float:
        """Seconds of the smallest all-reduce."""
        return self.all_reduce[0].seconds if self.all_reduce else 0.0

    @property
    def infiniband(self) -> str:
        """One sentence on InfiniBand."""
        ports = [port for machine in self.machines for port in machine["infiniband"]]
        active = [port for port in ports if port["state"] == "ACTIVE" and port["link_layer"] == "InfiniBand"]
        if not ports:
            return "no InfiniBand"
        if not active:
            return "InfiniBand devices, but no active port"
        disabled = any(machine["variables"].get("NCCL_IB_DISABLE") == "1" for machine in self.machines)
        return f"InfiniBand at {active[0]['rate']}" + (", switched off by NCCL_IB_DISABLE=1" if disabled else "")

    def numbers(self) -> dict[str, float]:
        """The measures for a tracker."""
        return {
            "bus_gbytes_per_second": self.best,
            "latency_microseconds": self.latency * 1e6,
            "problems": float(len(self.problems)),
        }

    def verdict(self) -> str:
        """One line: sound or not, how fast, InfiniBand or not."""
        sound = (
            "sound"
            if not self.problems
            else f"NOT sound, {len(self.problems)} problem{'' if len(self.problems) == 1 else 's'}"
        )
        speed = f"all-reduce up to {self.best:.2f} GB/s bus bandwidth, {self.latency * 1e6:.0f} us for the smallest"
        measured = speed if len(self.machines) > 1 else "no bandwidth, since it has nobody to send to"
        return f"verdict: {sound}; {self.rank_count} over {self.transport}, {measured}; {self.infiniband}"


def find_problems(machines: Sequence[dict[str, Any]], pairs: Sequence[RankPair]) -> list[str]:
    """Everything that would make a training fail, hang or crawl, one sentence each."""
    problems = [f"rank {pair.first} does not reach rank {pair.second}: {pair.error}" for pair in pairs if pair.error]
    problems += [f"rank {one['rank']}: {one['unusable']}" for one in machines if one.get("unusable")]
    problems += _differences({machine["rank"]: machine["versions"] for machine in machines})
    problems += _differences({machine["rank"]: {"device": machine["device"]["name"]} for machine in machines})
    owners: dict[str, list[int]] = defaultdict(list)
    for machine in machines:
        if "id" in machine["device"]:
            owners[machine["device"]["id"]].append(machine["rank"])
    for device, ranks in owners.items():
        if len(ranks) > 1:
            problems.append(f"ranks {_listed(ranks)} share one GPU ({device}): NCCL refuses that.")
    return problems


def _differences(facts: dict[int, dict[str, str]]) -> list[str]:
    """Each fact that is not the same on all ranks, with who has which value."""
    problems = []
    for name in sorted({name for values in facts.values() for name in values}):
        by_value: dict[str, list[int]] = defaultdict(list)
        for rank, values in facts.items():
            by_value[values.get(name, "not there")].append(rank)
        if len(by_value) > 1:
            seen = "; ".join(f"{value} on rank {_listed(ranks)}" for value, ranks in by_value.items())
            problems.append(f"{name} differs: {seen}.")
    return problems


def _listed(ranks: Sequence[int], most: int = 8) -> str:
    return ", ".join(map(str, ranks[:most])) + (f" and {len(ranks) - most} more" if len(ranks) > most else "")

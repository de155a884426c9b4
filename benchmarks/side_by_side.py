"""Two ways to do the same thing, run in turn in one go: on a shared machine only ratios of neighbours mean anything."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of each run of two ways, in the order in which they were run: ours, theirs, and so on."""

    name: str
    ours: str
    theirs: str
    our_seconds: list[float]
    their_seconds: list[float]
    limit: str

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios, ours over theirs."""
        return statistics.median(a / b for a, b in zip(self.our_seconds, self.their_seconds, strict=True))


def in_turn(
    name: str,
    ours: tuple[str, Callable[[], float]],
    theirs: tuple[str, Callable[[], float]],
    *,
    rounds: int,
    limit: str,
) -> Comparison:
    """Run both ways alternately, one round first that does not count; each callable returns its seconds."""
    ours[1](), theirs[1]()
    pairs = [(ours[1](), theirs[1]()) for _ in range(rounds)]
    return Comparison(name, ours[0], theirs[0], [a for a, _ in pairs], [b for _, b in pairs], limit)


def seconds(function: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def hardware() -> dict[str, str | int | float]:
    """What the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


_COMMAND = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
"""As it is typed in a checkout; kept here, since a benchmark may give `sys.argv` to what it measures."""


def keep(name: str, comparisons: list[Comparison], **more: object) -> None:
    """Print the figures, and keep them with the command and the hardware in results/<name>.json."""
    for one in comparisons:
        ours, theirs = statistics.median(one.our_seconds), statistics.median(one.their_seconds)
        print(f"{one.name}: {one.ours} {ours:.3f} s, {one.theirs} {theirs:.3f} s, ratio {one.ratio:.2f} ({one.limit})")
    for key, value in more.items():
        print(f"{key}: {value}")
    RESULTS.mkdir(exist_ok=True)
    document = {
        "command": _COMMAND,
        "date": time.strftime("%Y-%m-%d"),
        "hardware": hardware(),
        "comparisons": [{**asdict(one), "ratio": round(one.ratio, 3)} for one in comparisons],
        **more,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def peak_mebibytes_of_children() -> float:
    """The largest resident size that a finished child of this process had."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024

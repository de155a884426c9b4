"""The efficiencies that `allranks plan` predicts, against those that others have measured and published.

`published_scaling.yaml` has each row with its source and hardware. The compute of a rank is solved for at the row's
base, and every further number of nodes is predicted from the links' data sheets. One constant is fitted, to the rows
that say so (`--fit` does it again); all others are held out::

    python benchmarks/published_scaling.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from allranks.planning import ModelExchange, NetworkLink, NodeNetwork, StepWork, predict_step
from allranks.planning.links import (
    LOCAL_SHARE,
    NVLINK_LATENCY,
    PCIE_LATENCY,
    RDMA_LATENCY,
    RDMA_SHARE,
    TCP_LATENCY,
)
from allranks.planning.step import BUCKET_BYTES, REPLICATED, STRAGGLER_SPREAD

DATA: Final = Path(__file__).with_suffix(".yaml")
RESULTS_FILE: Final = Path(__file__).parent / "results" / "published_scaling.json"
NAMED: Final = ("horovod", "ddp", "torchtitan", "trainy", "nemo")
"""The sources that were set before any of this was written."""
LIMIT: Final = 0.10
"""The largest error, relative to the published efficiency."""
WANTED: Final = 0.80
"""The share of all published efficiencies that have to be within it."""


@dataclass(frozen=True, slots=True)
class PublishedCase:
    """One published efficiency, and all that predicts it."""

    row: Mapping[str, Any]
    hardware: str
    network: NodeNetwork
    nodes: int
    published: float

    def predicted(self, spread: float = STRAGGLER_SPREAD) -> float:
        """The efficiency against the row's base."""
        row = self.row
        model = _model(row)
        base_nodes, base_network = row.get("nodes", 1), self.network
        if row.get("base") in ("one rank", "computing"):
            base_network = replace(self.network, ranks_per_node=1)
        strong = row.get("scaling") == "strong"
        micro = row.get("micro", 1)
        shrink = base_nodes / self.nodes if strong else 1.0

        def total(compute: float, network: NodeNetwork, nodes: int, part: float) -> float:
            batches = max(1, round(micro * part))
            work = StepWork(compute * part, batches, row.get("pipeline", 1), row.get("tensor", 1))
            return predict_step(work, model, network, nodes, spread=spread).total

        compute = _solve(lambda value: total(value, base_network, base_nodes, 1.0), row["seconds"])
        return shrink * float(row["seconds"]) / total(compute, self.network, self.nodes, shrink)

    def error(self, spread: float = STRAGGLER_SPREAD) -> float:
        """Predicted over published, less 1."""
        return self.predicted(spread) / self.published - 1


def _model(row: Mapping[str, Any]) -> ModelExchange:
    return ModelExchange(
        gradient_bytes=row["parameters"] * row["gradient"],
        weight_bytes=row["parameters"] * row.get("weight", 0),
        division=row.get("division", REPLICATED),
        units=row.get("units", 1),
        bucket_bytes=row["bucket"] * 2**20 if "bucket" in row else BUCKET_BYTES,
        overlaps=row.get("overlaps", True),
    )


def _network(system: Mapping[str, Any]) -> NodeNetwork:
    local = NetworkLink(
        LOCAL_SHARE * system["local"] * 1e9, NVLINK_LATENCY if system.get("nvlink", True) else PCIE_LATENCY
    )
    is_rdma = system["kind"] == "rdma"
    share, latency = (RDMA_SHARE, RDMA_LATENCY) if is_rdma else (1.0, TCP_LATENCY)
    return NodeNetwork(system["ranks"], local, NetworkLink(share * system["remote"] * 1e9 / 8, latency))


def _solve(function: Callable[[float], float], wanted: float) -> float:
    """Where a growing function has a value, by halving; 0 where it has more from the start."""
    low, high = 0.0, wanted
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) < wanted else (low, middle)
    return (low + high) / 2


def read_cases() -> list[PublishedCase]:
    """All published efficiencies of the data file."""
    document = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return [
        PublishedCase(
            row,
            document["systems"][row["system"]]["hardware"],
            _network(document["systems"][row["system"]]),
            nodes,
            found,
        )
        for row in document["rows"]
        for nodes, found in row["results"]
    ]


def fit_spread(cases: Iterable[PublishedCase]) -> float:
    """The spread with the smallest squared errors, to a thousandth, of the rows that are there for it."""
    chosen = [case for case in cases if case.row.get("fit")]
    grid = [thousandths / 1000 for thousandths in range(61)]
    return min(grid, key=lambda spread: sum(case.error(spread) ** 2 for case in chosen))


def main() -> None:
    """Print and keep a line for each published efficiency."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="fit the constant again, and print it")
    cases = read_cases()
    if parser.parse_args().fit:
        print(f"STRAGGLER_SPREAD = {fit_spread(cases)}")
        return
    lines = [_line(case) for case in cases]
    for line in lines:
        figures = f"published {line['published']:.3f}  predicted {line['predicted']:.3f}  {100 * line['error']:+.1f} %"
        print(f"{line['name']:<52}{line['nodes']:>4} nodes  {figures}  {line['why']}".rstrip())
    within = {
        "all": _share(lines),
        "held_out": _share(line for line in lines if not line["fitted"]),
        "named_sources": _share(line for line in lines if line["source"] in NAMED),
    }
    errors = [abs(line["error"]) for line in lines]
    print(f"{len(lines)} efficiencies; within {LIMIT:.0%}: {within}; median error {statistics.median(errors):.3f}")
    RESULTS_FILE.parent.mkdir(exist_ok=True)
    document = {"command": "python benchmarks/published_scaling.py", "date": time.strftime("%Y-%m-%d"), "limit": LIMIT}
    document |= {"within": within, "median_error": round(statistics.median(errors), 4), "table": lines}
    RESULTS_FILE.write_text(json.dumps(document, indent=1) + "\n")
    assert within["all"] >= WANTED, within
    assert all(line["within"] or line["why"] for line in lines), "an exception has no explanation"


def _share(lines: Iterable[Mapping[str, Any]]) -> float:
    """Of some lines, how many are within the limit."""
    return round(statistics.mean(float(line["within"]) for line in lines), 3)


def _line(case: PublishedCase) -> dict[str, Any]:
    predicted, error = case.predicted(), case.error()
    return {
        "name": case.row["name"],
        "source": case.row["source"],
        "hardware": case.hardware,
        "nodes": case.nodes,
        "published": case.published,
        "predicted": round(predicted, 4),
        "error": round(error, 4),
        "within": abs(error) <= LIMIT,
        "fitted": bool(case.row.get("fit")),
        "why": case.row.get("why", "") if abs(error) > LIMIT else "",
    }


if __name__ == "__main__":
    main()

"""What `allranks plan` predicts of exchanges between nodes, against gloo over links of limited speed on this machine.

Each node is a network namespace, joined to a bridge by a pair of virtual Ethernet devices, with a token bucket on what
it sends. It needs root, `ip` and `tc`, and says so where they are not there. Measured are all-reduces, and a small DDP
step, whose compute is measured alone::

    sudo python benchmarks/emulated_links.py
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from side_by_side import RESULTS, hardware

sys.path.insert(0, str(Path(__file__).parents[1]))

from allranks.planning import ModelExchange, NetworkLink, NodeNetwork, StepWork, predict_step
from allranks.planning.collectives import ring_seconds

LIMIT: Final = 0.25
"""The largest error of the median prediction; one machine has to compute for all nodes."""
MEGABITS: Final = (20, 60)
"""Slow enough that the links are waited for, and not the one machine that copies for all nodes."""
SIZES: Final = (2**20, 4 * 2**20)
FRAME_SHARE: Final = 1448 / 1514
"""Of an Ethernet frame of 1,514 bytes, which the bucket counts, that is the payload of TCP with time stamps."""
LATENCY: Final = 100e-6

RANK = textwrap.dedent(
    """
    import json, os, statistics, sys, time
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    rank, world, sizes = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    found = {}
    if world > 1:
        dist.init_process_group("gloo", init_method="tcp://10.77.0.1:29577", rank=rank, world_size=world)
    for size in sizes if world > 1 else ():
        values, took = torch.ones(size // 4), []
        for _ in range(4):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(values)
            took.append(time.perf_counter() - began)
        found[str(size)] = statistics.median(took[1:])
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
    rows = torch.randn(int(sys.argv[4]), 512)
    model = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
    took = []
    for _ in range(5):
        began = time.perf_counter()
        model(rows).square().mean().backward()
        took.append(time.perf_counter() - began)
    found["step"] = statistics.median(took[1:])
    if world > 1:
        dist.barrier()
    if rank == 0:
        print(json.dumps(found), flush=True)
    os._exit(0)  # gloo's threads need no more than that
    """
)
WEIGHTS: Final = 4 * (512 * 512 + 512)
ROWS: Final = 512


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def joined_nodes(nodes: int, megabits: int) -> Iterator[list[str]]:
    """Network namespaces on a bridge, each with so many megabits a second in both directions; removed at the end."""
    mark = f"ar{os.getpid() % 10000}"
    names = [f"{mark}n{number}" for number in range(nodes)]
    try:
        ip("link", "add", f"{mark}b", "type", "bridge")
        ip("link", "set", f"{mark}b", "up")
        for number, name in enumerate(names, 1):
            ip("netns", "add", name)
            ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}o", "master", f"{mark}b", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            limit = ["rate", f"{megabits}mbit", "burst", "64kb", "latency", "200ms"]
            words = ["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *limit]
            subprocess.run(words, check=True, capture_output=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{mark}b"], check=False, capture_output=True)


def measured(names: Sequence[str], rows: int) -> dict[str, float]:
    """Seconds of each all-reduce and of a step, with a rank in each namespace; of a step alone without any."""
    places = [["ip", "netns", "exec", name] for name in names] or [[]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    ranks = [
        subprocess.Popen(
            [*place, sys.executable, "-c", RANK, str(rank), str(len(places)), json.dumps(SIZES), str(rows)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for rank, place in enumerate(places)
    ]
    try:
        said = ranks[0].communicate(timeout=300)[0]
        codes = [rank.wait(60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(codes), codes
    found = json.loads(said)
    return {str(name): float(seconds) for name, seconds in found.items()}


def main() -> None:
    """Print and keep predicted and measured seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    asked = parser.parse_args()
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print(f"skipped: it needs root, ip and tc (apt-get install iproute2); missing: {missing or 'root'}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no namespace is left
    table: list[dict[str, Any]] = []
    about = hardware()
    for nodes in asked.nodes:
        for megabits in MEGABITS:
            table += _compared(nodes, megabits)
    errors = {what: statistics.median(abs(one["error"]) for one in table if one["what"] == what) for what in WHAT}
    for what, error in errors.items():
        print(f"{what}: median error {error:.3f}")
    document: dict[str, object] = {
        "command": "sudo python benchmarks/emulated_links.py",
        "date": time.strftime("%Y-%m-%d"),
    }
    document |= {"hardware": about, "limit": LIMIT, "median_errors": errors, "table": table}
    (RESULTS / "emulated_links.json").write_text(json.dumps(document, indent=1) + "\n")
    assert max(errors.values()) <= LIMIT, errors


WHAT: Final = ("all-reduce", "step")


def _compared(nodes: int, megabits: int) -> Iterator[dict[str, Any]]:
    link = NetworkLink(FRAME_SHARE * megabits * 1e6 / 8, LATENCY)
    network = NodeNetwork(1, link, link)
    with joined_nodes(nodes, megabits) as names:
        found = measured(names, ROWS)
    # All ranks compute on this machine's cores, in turn where there are more of them.
    alone = measured([], ROWS)["step"] * max(1.0, nodes / len(os.sched_getaffinity(0)))
    step = predict_step(StepWork(alone), ModelExchange(4.0 * WEIGHTS), network, nodes)
    pairs = [
        (f"all-reduce of {size / 2**20:g} MiB", ring_seconds(network, nodes, size), found[str(size)]) for size in SIZES
    ]
    for name, predicted, took in [*pairs, ("step", step.total, found["step"])]:
        error = predicted / took - 1
        print(
            f"{nodes} nodes, {megabits} Mb/s, {name}: predicted {predicted:.3f} s, measured {took:.3f} s, {error:+.1%}"
        )
        yield {
            "what": "step" if name == "step" else "all-reduce",
            "name": name,
            "nodes": nodes,
            "megabits": megabits,
            "predicted_seconds": round(predicted, 4),
            "measured_seconds": round(took, 4),
            "error": round(error, 4),
        }


if __name__ == "__main__":
    main()

"""What a sentry costs, which looks beside each rank whether it was stopped: its start, and then its share of a core.

    python benchmarks/sentry.py

Both are the kernel's own count of what the process has run (/proc/PID/schedstat), of one that looks at an idle process
for a minute; and its memory that it shares with no other process.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from pathlib import Path

from side_by_side import keep

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared.distributed import sentry


def used_ms(pid: int) -> float:
    """Milliseconds of a processor that a process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def private_mb(pid: int) -> float:
    """Megabytes that only this process holds."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) * 1024 / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    began = time.perf_counter()
    ours, theirs = socket.socketpair()
    pid = sentry.start_sentry("rank 0 (node 0)", theirs.fileno())
    in_rank = 1e3 * (time.perf_counter() - began)
    assert pid is not None, "Linux alone has what a sentry needs"
    time.sleep(2)
    start = used_ms(pid)
    time.sleep(args.seconds)
    share = (used_ms(pid) - start) / (1e3 * args.seconds)
    found = {
        "start_in_the_rank_ms": round(in_rank, 1),
        "start_of_the_sentry_ms": round(start, 1),
        "share_of_a_core": round(share, 6),
        "private_mb": round(private_mb(pid), 1),
    }
    ours.close()
    keep("sentry", [], **found)


if __name__ == "__main__":
    main()

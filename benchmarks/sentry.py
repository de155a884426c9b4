"""What the sentries cost, which look beside each rank whether it lives: start, share of a core, and rank 0 with 1,024.

    python benchmarks/sentry.py

Both are the kernel's own count of what the process has run (/proc/PID/schedstat), of one that looks at an idle process
for a minute; and its memory that it shares with no other process. Rank 0 then has the connections of 1,024 ranks and
of their sentries, for a while in which all is well, and for a roll call, in which each sentry answers.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import time
from pathlib import Path

from side_by_side import keep

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared.distributed import liveness
from shared.distributed.launch import Launch
from shared.distributed.meeting import hello_message
from shared.distributed.server import ControlServer
from shared.distributed.wire import MessageDecoder, encode_message, receive_message

RANKS = 1024


def used_ms(pid: int) -> float:
    """Milliseconds of a processor that a process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def private_mb(pid: int) -> float:
    """Megabytes that only this process holds."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) * 1024 / 1e6


def rank_0_costs(seconds: float) -> dict[str, float]:
    """Measure the control plane in rank 0 of so many ranks: share of a core while all is well, and a roll call."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    where = listener.getsockname()

    def launch(rank: int) -> Launch:
        return Launch(rank, RANKS, rank % 8, 8, rank // 8, RANKS // 8, "torchrun", where[0], where[1] - 1)

    server = ControlServer(listener, launch(0), "token")
    server.start()
    links: dict[str, list[socket.socket]] = {"": [], "sentry of worker": []}
    for rank in range(RANKS):
        for channel, opened in links.items():
            link = socket.create_connection(where)
            link.sendall(encode_message(hello_message(launch(rank), "token", channel)))
            assert "ok" in receive_message(link, MessageDecoder(), 10)
            opened.append(link)
    clock = time.pthread_getcpuclockid(server.ident or 0)
    before = time.clock_gettime(clock)
    time.sleep(seconds)
    idle = time.clock_gettime(clock) - before
    sentries = links["sentry of worker"]
    began, before = time.perf_counter(), time.clock_gettime(clock)
    sentries[1].sendall(encode_message({"op": "silent"}))
    answer = {"op": "where", "moving": False, "watched": True, "steps": 40, "busy": 0.0, "seconds": 300.0}
    for rank, link in enumerate(sentries):
        assert receive_message(link, MessageDecoder(), 10) == {"ask": "where"}
        place = "/code/train.py:33 (loss)" if rank == RANKS - 1 else "/site-packages/torch/distributed/c10d.py:1 (wait)"
        link.sendall(encode_message({**answer, "place": place}))
    news = [receive_message(link, MessageDecoder(), 10) for link in sentries]
    assert all(str(one["message"]).startswith(f"rank {RANKS - 1} (node") for one in news), news[0]
    found = {
        "rank_0_share_of_a_core": round(idle / seconds, 6),
        "roll_call_ms": round(1e3 * (time.perf_counter() - began), 1),
        "roll_call_of_rank_0_ms": round(1e3 * (time.clock_gettime(clock) - before), 1),
    }
    server.close_sockets()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()
    began = time.perf_counter()
    ours, theirs = socket.socketpair()
    link = liveness.start_sentry("rank 0 (node 0)", theirs)
    in_rank = 1e3 * (time.perf_counter() - began)
    assert link is not None, "Linux alone has what a sentry needs"
    pid = link.pid
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
    keep("sentry", [], **found, **rank_0_costs(min(10.0, args.seconds)))


if __name__ == "__main__":
    main()

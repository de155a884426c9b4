"""What the sentries cost, which look beside each rank whether it lives: start, share of a core, and rank 0 with 1,024.

    python benchmarks/sentry.py

Both are the kernel's own count of what the process has run (/proc/PID/schedstat), of one that looks at an idle process
for a minute; and its memory that it shares with no other process. Then a process joins a world as its rank 0, with all
that this starts, and has the connections of 1,023 ranks and of their sentries, 64 of which are real ones. What that
process uses in all is told, for a while in which all is well, when sentries send nothing, and for a roll call, in which
each of the others answers.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from side_by_side import keep

sys.path.insert(0, str(Path(__file__).parents[1]))

from shared.distributed import liveness
from shared.distributed.joining import join_world
from shared.distributed.launch import Launch
from shared.distributed.meeting import hello_message
from shared.distributed.wire import MessageDecoder, encode_message, receive_message

RANKS, REAL = 1024, 64
CHANNEL = "sentry of worker"
JOB = {"AZUREML_RUN_ID": "benchmark"}
TOKEN = hashlib.sha256(JOB["AZUREML_RUN_ID"].encode()).hexdigest()


def used_ms(pid: int) -> float:
    """Milliseconds of a processor that a process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def private_mb(pid: int) -> float:
    """Megabytes that only this process holds."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) * 1024 / 1e6


def launch_of(rank: int, port: int) -> Launch:
    """What rank so-and-so of 128 nodes of 8 was told by torchrun; its main port is the control plane's less one."""
    return Launch(rank, RANKS, rank % 8, 8, rank // 8, RANKS // 8, "torchrun", "127.0.0.1", port - 1)


def be_rank_0(port: int) -> None:
    """Be rank 0 as a training has it, and print for each line of the standard input the milliseconds used so far."""
    join_world(launch_of(0, port), JOB, 300)
    for _ in sys.stdin:
        print(1e3 * time.process_time(), flush=True)


def open_link(rank: int, port: int, channel: str) -> socket.socket:
    """Connect as a rank does, or, as a channel, its sentry, and be let in."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(encode_message(hello_message(launch_of(rank, port), TOKEN, channel)))
    assert "ok" in receive_message(link, MessageDecoder(), 60)
    return link


def join_all(port: int) -> list[socket.socket]:
    """Join as all ranks but 0; returns their connections."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
        time.sleep(0.1)
    links = [open_link(rank, port, "") for rank in range(1, RANKS)]
    join = {"op": "meet", "kind": "join", "scope": "job", "key": "join/job/1/start", "label": "start", "value": None}
    for link in links:
        link.sendall(encode_message({**join, "brings": True, "timeout": 60}))
    assert all("ok" in receive_message(link, MessageDecoder(), 60) for link in links)
    return links


def rank_0_costs(seconds: float) -> dict[str, float]:
    """Measure rank 0, a process of its own, of so many ranks: share of a core while all is well, and a roll call."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--rank-0", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank_0:
        told, heard = rank_0.stdin, rank_0.stdout
        assert told is not None
        assert heard is not None

        def used() -> float:
            print(flush=True, file=told)
            return float(heard.readline())

        ranks = join_all(port)
        live = [(link := open_link(rank, port, CHANNEL), start_real(rank, link)) for rank in range(1, 1 + REAL)]
        bare = {rank: open_link(rank, port, CHANNEL) for rank in range(1 + REAL, RANKS)}
        time.sleep(2)
        before = used()
        time.sleep(seconds)
        idle = used() - before
        for link, sentry in live:  # before the roll call, which would end this process for them
            sentry.release()
            link.close()
        time.sleep(2)
        found = {"rank_0_share_of_a_core": round(idle / (1e3 * seconds), 6), **call_the_roll(bare, used)}
        rank_0.kill()
    for link in (*ranks, *bare.values()):
        link.close()
    return found


def start_real(rank: int, link: socket.socket) -> liveness.SentryLink:
    """Start a sentry as a rank does; all of these watch this process."""
    sentry = liveness.start_sentry(f"rank {rank} (node {rank // 8})", link)
    assert sentry is not None
    return sentry


def call_the_roll(sentries: Mapping[int, socket.socket], used: Callable[[], float]) -> dict[str, float]:
    """Have one of the sentries raise an alarm, and all answer; rank 0's own one takes a second to look."""
    before, began = used(), time.perf_counter()
    next(iter(sentries.values())).sendall(encode_message({"op": "silent"}))
    answer = {
        "op": "where",
        "moving": False,
        "waits": True,
        "watched": True,
        "overdue": False,
        "steps": 40,
        "busy": 0.0,
        "seconds": 300,
    }
    for rank, link in sentries.items():
        assert receive_message(link, MessageDecoder(), 10) == {"ask": "where"}
        place = "/code/train.py:33 (loss)" if rank == RANKS - 1 else "/site-packages/torch/distributed/c10d.py:1 (wait)"
        link.sendall(encode_message({**answer, "place": place}))
    news = [receive_message(link, MessageDecoder(), 10) for link in sentries.values()]
    took = time.perf_counter() - began
    assert all(str(one["message"]).startswith(f"rank {RANKS - 1} (node") for one in news), news[0]
    return {"roll_call_ms": round(1e3 * took, 1), "roll_call_of_rank_0_ms": round(used() - before, 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rank-0", type=int, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_0:
        be_rank_0(args.rank_0)
        return
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
    link.release()  # else it ends this process, whose world it takes to have broken
    ours.close()
    keep("sentry", [], **found, **rank_0_costs(min(10.0, args.seconds)))


if __name__ == "__main__":
    main()

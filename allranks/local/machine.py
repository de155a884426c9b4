"""What this machine has to share out: cores, GPUs, ports."""

from __future__ import annotations

import os
import re
import socket
from functools import cache

from allranks.errors import CannotRunHereError

# Below the range that Linux gives out by itself (32768 and up), so that no outgoing connection sits there by chance.
FIRST_PORT, LAST_PORT = 20000, 29998


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def gpus() -> tuple[str, ...]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; no library is asked."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name.strip() for name in chosen.split(",") if name.strip() not in {"", "-1"})
    numbers = sorted(int(m[1]) for name in os.listdir("/dev") if (m := re.fullmatch(r"nvidia(\d+)", name)))  # noqa: PTH208
    return tuple(map(str, numbers))


def gpu_shares(nodes: int, processes: int) -> tuple[str, ...] | None:
    """CUDA_VISIBLE_DEVICES of each emulated node, None where there is no GPU.

    Two ranks cannot share a GPU under NCCL ("Duplicate GPU detected"): where there are fewer GPUs than ranks, the
    nodes see none and train on the CPU.
    """
    devices = gpus()
    if not devices:
        return None
    share = len(devices) // nodes
    if share < processes:
        return ("",) * nodes
    return tuple(",".join(devices[node * share : (node + 1) * share]) for node in range(nodes))


class Ports:
    """Hands out free ports in rows, none twice in the same engine until all had their turn."""

    def __init__(self) -> None:
        # Engines that start together should not try the same ports in the same order.
        self._next = FIRST_PORT + os.getpid() * 16 % (LAST_PORT - FIRST_PORT)

    def row(self, length: int = 2) -> int:
        """The first of so many ports in a row that are free now: the main port, and the control plane's above it."""
        for _ in range(LAST_PORT - FIRST_PORT):
            first, self._next = self._next, self._next + length
            if self._next > LAST_PORT:
                self._next = FIRST_PORT
            if first + length <= LAST_PORT and all(_free(port) for port in range(first, first + length)):
                return first
        raise CannotRunHereError(f"no {length} free ports in a row between {FIRST_PORT} and {LAST_PORT}.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

"""What this machine has to share out: cores, GPUs, ports."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable
from functools import cache
from itertools import takewhile

from allranks.errors import CannotRunHereError

# Below what Linux gives out by itself (32768 and up), so that no outgoing connection sits there by chance; and above
# what jobs without a MASTER_PORT derive from their ids (shared/distributed/address.py), which ask nobody.
_FIRST_PORT, _LAST_PORT = 30100, 32766


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def usable_gpus() -> tuple[str, ...]:
    """The NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; no library is asked."""
    return visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), os.listdir("/dev"))  # noqa: PTH208


def visible_gpus(chosen: str | None, devices: Iterable[str]) -> tuple[str, ...]:
    """The GPUs of these device files that CUDA_VISIBLE_DEVICES leaves; None as its value leaves all.

    CUDA stops to read at the first entry that is empty or -1.
    """
    if chosen is not None:
        return tuple(takewhile(lambda name: name not in {"", "-1"}, map(str.strip, chosen.split(","))))
    return tuple(map(str, sorted(int(m[1]) for name in devices if (m := re.fullmatch(r"nvidia(\d+)", name)))))


def gpu_shares(nodes: int, processes: int) -> tuple[str, ...] | None:
    """CUDA_VISIBLE_DEVICES of each emulated node, None where there is no GPU.

    Two ranks cannot share a GPU under NCCL ("Duplicate GPU detected"): where there are fewer GPUs than ranks, the
    nodes see none and train on the CPU.
    """
    devices = usable_gpus()
    if not devices:
        return None
    share = len(devices) // nodes
    if share < processes:
        return ("",) * nodes
    return tuple(",".join(devices[node * share : (node + 1) * share]) for node in range(nodes))


def gpu_shortage(nodes: int, processes: int) -> str:
    """Why these ranks train on the CPU of a machine with GPUs; empty where they do not, or where it has none."""
    if not usable_gpus() or gpu_shares(nodes, processes) != ("",) * nodes:
        return ""
    return (
        f"{nodes} node(s) x {processes} rank(s) on {len(usable_gpus())} GPU(s): NCCL takes one rank for each, "
        "and nodes get equal shares, so all of them train on the CPU."
    )


class PortRow:
    """Ports in a row that no other engine of this machine hands out until it is closed, whoever listens there."""

    def __init__(self, ports: range) -> None:
        self.first = ports.start
        self._claims: list[socket.socket] = []
        self._ports = ports

    def claim(self) -> bool:
        """Take all of them, or none because one is in use."""
        # A rank takes a second to listen, and until then another engine would find its port free as well.
        if all(map(self._claim, self._ports)):
            return True
        self.close()
        return False

    def close(self) -> None:
        """Let others have them."""
        for claim in self._claims:
            claim.close()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        self._claims.append(claim)
        try:
            claim.bind(f"\0allranks-port-{port}")  # no file: gone with the engine, and seen where the port is seen
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return _free(port)


class FreePorts:
    """Hands out free ports in rows, none twice in the same engine until all had their turn."""

    def __init__(self) -> None:
        # Engines that start together should not try the same ports in the same order.
        self._next = _FIRST_PORT + os.getpid() * 16 % (_LAST_PORT - _FIRST_PORT)

    def row(self, length: int = 2) -> PortRow:
        """So many ports in a row that are free: the main port, the control plane's above it, and further ones."""
        for _ in range(_LAST_PORT - _FIRST_PORT):
            first, self._next = self._next, self._next + length
            if self._next > _LAST_PORT:
                self._next = _FIRST_PORT
            row = PortRow(range(first, first + length))
            if first + length <= _LAST_PORT and row.claim():
                return row
        raise CannotRunHereError(f"no {length} free ports in a row between {_FIRST_PORT} and {_LAST_PORT}.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

"""What this machine has to share out: cores, GPUs, ports."""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from collections.abc import Iterable
from functools import cache
from itertools import takewhile
from pathlib import Path

from allranks.errors import CannotRunHereError

_FIRST_PORT, _LAST_PORT = 10100, 19998
"""Above the ports that Open MPI opens (1024 and up, one for each rank), below those that jobs without a MASTER_PORT
derive from their ids (20000 and up, ``shared/distributed/address.py``) and below Linux's ephemeral ports."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that Linux gives to sockets that ask for none; 32768 and 60999 by default (ip(7))."""


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


def port_range(ephemeral: str) -> tuple[int, int]:
    """Return the first and the last port to hand out, below the ephemeral ones unless these begin at 2048 or lower."""
    lowest = int((ephemeral.split() or ["32768"])[0])
    if lowest <= 2048 or lowest > _LAST_PORT:
        return _FIRST_PORT, _LAST_PORT
    return min(_FIRST_PORT, lowest // 2), lowest - 1


class PortRow:
    """Consecutive ports that no other engine in this network namespace hands out until ``close``."""

    def __init__(self, ports: range) -> None:
        self.first = ports.start
        self._claims: list[socket.socket] = []
        self._ports = ports

    def claim(self) -> bool:
        """Claim all ports. Return False, and claim none, if one of them is in use."""
        # A rank listens only a second later, and until then another engine would find its port free as well.
        if all(map(self._claim, self._ports)):
            return True
        self.close()
        return False

    def close(self) -> None:
        """Release the ports."""
        for claim in self._claims:
            claim.close()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX)
        self._claims.append(claim)
        try:
            claim.bind(f"\0allranks-port-{port}")  # abstract, unix(7): no file, freed when the engine dies
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        return _free(port)


class FreePorts:
    """Hands out rows of free ports, in turn from a random first one."""

    def __init__(self) -> None:
        self._first, self._last = port_range(_EPHEMERAL.read_text() if _EPHEMERAL.exists() else "")
        self._next = self._first + secrets.randbelow(self._last - self._first)

    def row(self, length: int = 2) -> PortRow:
        """Claim ``length`` free ports: the main port, the control plane's above it, and further ones."""
        for _ in range(self._last - self._first):
            first, self._next = self._next, self._next + length
            if self._next > self._last:
                self._next = self._first
            row = PortRow(range(first, first + length))
            if first + length <= self._last and row.claim():
                return row
        raise CannotRunHereError(f"no {length} free ports in a row between {self._first} and {self._last}.")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

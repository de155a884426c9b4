"""Start every trainer on a few ranks, as its component does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.components.support import source_of
from tests.components.training import arguments
from tests.helpers import RankResult, RunningRank, finish, free_port, started, started_ranks

Options = Mapping[str, object]

MPI_TRAINERS = ("train_horovod", "train_horovod_keras")
TENSORFLOW_TRAINERS = ("train_tf_multiworker", "train_tf_parameter_server")
# The environment's own mpirun, whether or not its bin folder is in PATH.
_MPIRUN = (str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe", "-np")
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--node_rank", "0")
_SCRIPTS = {"train_torchrun": "train_ddp"}  # a component without a script of its own


@contextmanager
def launched(
    trainer: str, data: Path, out: Path, options: Options, *, count: int = 2, before: str = "pass"
) -> Iterator[list[RunningRank]]:
    """Start a trainer on `count` ranks with `out` as their working folder; yield the ranks, or their launcher.

    Each rank runs the statement `before` first.
    """
    out.mkdir(parents=True, exist_ok=True)
    script = _SCRIPTS.get(trainer, trainer)
    code = source_of(script, *arguments(data, out, **options), before=before)
    port = free_port()
    job = {"AZUREML_RUN_ID": f"launched_{port}", "AZUREML_NODE_COUNT": "1"}
    if trainer in MPI_TRAINERS:
        context = started(code, [job], out, [*_MPIRUN, str(count), sys.executable])
    elif trainer in TENSORFLOW_TRAINERS:
        job["MASTER_PORT"] = str(port)  # else one that follows from the run's id, which another job may have
        context = started(code, [{**job, "TF_CONFIG": task} for task in _tasks(trainer, count)], out)
    elif trainer == "train_torchrun":
        where = ("--nproc_per_node", str(count), "--master_addr", "127.0.0.1", "--master_port", str(port))
        context = started(code, [{**job, "NODE_RANK": "0"}], out, [*_TORCHRUN, *where])
    else:
        context = started_ranks(code, 1, count, cwd=out)
    with context as ranks:
        yield ranks


def end_launched(
    trainer: str, data: Path, out: Path, options: Options, *, count: int = 2, before: str = "pass"
) -> list[RankResult]:
    """Start a trainer as above, and wait for its end."""
    with launched(trainer, data, out, options, count=count, before=before) as ranks:
        return finish(ranks)


def run_launched(trainer: str, data: Path, out: Path, options: Options, *, count: int = 2) -> list[RankResult]:
    """Train to the end and expect success."""
    results = end_launched(trainer, data, out, options, count=count)
    assert not any(result.returncode for result in results), "".join(result.stderr[-3000:] for result in results)
    return results


def _tasks(trainer: str, workers: int) -> list[str]:
    """TF_CONFIG of each process: the workers, and a server of parameters where the trainer wants one."""
    counts = {"worker": workers} | ({"ps": 1} if trainer == "train_tf_parameter_server" else {})
    cluster = {role: [f"127.0.0.1:{free_port()}" for _ in range(count)] for role, count in counts.items()}
    return [
        json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
        for role, count in counts.items()
        for index in range(count)
    ]

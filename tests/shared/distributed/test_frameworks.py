"""One module for every launcher and framework: the same three lines say who this is, whatever started them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.helpers import ROOT, clean_environment, finish, free_port, run_ranks, started
from tests.local.support import run_json
from tests.waiting import TIMEOUT

WHO = """
    import json, os
    from shared.distributed import init
    with init() as world:
        place = [world.rank, world.local_rank, world.node_rank, world.world_size, world.num_nodes]
        os.write(1, f"WHO {json.dumps(place)}\\n".encode())  # one write: the ranks of torchrun share this file
"""
ON_2X2 = [[0, 0, 0, 4, 2], [1, 1, 0, 4, 2], [2, 0, 1, 4, 2], [3, 1, 1, 4, 2]]


def said(text: str) -> list[list[int]]:
    return sorted(json.loads(line.partition("WHO ")[2]) for line in text.splitlines() if "WHO " in line)


def run_step(folder: Path, distribution: str, command: str = "python who.py") -> list[list[int]]:
    code = folder / "code"
    code.mkdir()
    (code / "who.py").write_text(textwrap.dedent(WHO))
    (folder / "component.yaml").write_text(
        textwrap.dedent(f"""
            type: command
            name: who
            version: "1"
            code: ./code
            additional_includes: [{ROOT}/shared]
            command: {command}
            environment: azureml:theirs:1
            distribution: {distribution}
            resources: {{instance_count: 2}}
        """)
    )
    document = run_json("component.yaml", cwd=folder)
    step = document["steps"]["who"]
    logs = [path.read_text() for path in (Path(step["folder"]) / "user_logs").glob("std_log*")]
    assert document["exit"] == 0, logs
    return said("\n".join(logs))


def test_under_python() -> None:
    with started(WHO, [{}]) as ranks:
        assert said(finish(ranks)[0].stdout) == [[0, 0, 0, 1, 1]]


@pytest.mark.exhaustive
def test_under_torchrun() -> None:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--master_port",
        str(free_port()),
    ]
    with started(WHO, [{}], launcher=launcher) as ranks:
        assert said(finish(ranks)[0].stdout) == [[0, 0, 0, 2, 1], [1, 1, 0, 2, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mpi", pytest.param("pytorch", marks=pytest.mark.exhaustive)])
def test_as_a_step_of_four_ranks(kind: str, tmp_path: Path) -> None:
    assert run_step(tmp_path, f"{{type: {kind}, process_count_per_instance: 2}}") == ON_2X2


@pytest.mark.exhaustive  # tests/local/test_launchers.py has TF_CONFIG
def test_as_a_tensorflow_step(tmp_path: Path) -> None:
    assert run_step(tmp_path, "{type: tensorflow}") == [[0, 0, 0, 2, 2], [1, 0, 1, 2, 2]]


@pytest.mark.exhaustive
def test_under_mpirun_by_hand(tmp_path: Path) -> None:
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    assert mpirun is not None, "the dev extra brings mpirun"
    (tmp_path / "who.py").write_text(textwrap.dedent(WHO))
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable, "who.py"]
    environment = clean_environment({"MASTER_PORT": str(free_port())})
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    assert said(done.stdout) == [[0, 0, 0, 2, 1], [1, 1, 0, 2, 1]]


def test_in_the_variables_of_slurm() -> None:
    port = str(free_port())
    environments: list[Mapping[str, str | None]] = [
        {
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "4",
            "SLURM_LOCALID": str(rank % 2),
            "SLURM_NODEID": str(rank // 2),
            "SLURM_NNODES": "2",
            "SLURM_STEP_ID": "0",
            "SLURM_JOB_ID": port,
            "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        for rank in range(4)
    ]
    with started(WHO, environments) as ranks:
        assert said("\n".join(result.stdout for result in finish(ranks))) == ON_2X2


@pytest.mark.parametrize(("framework", "said"), [("horovod", "type: mpi"), ("tensorflow", "type: tensorflow")])
def test_ranks_that_its_own_launcher_did_not_start_are_refused(framework: str, said: str) -> None:
    results = run_ranks(f"from shared.distributed import init\nwith init({framework!r}):\n    pass\n")
    assert [result.returncode for result in results] == [2, 2]
    assert [result.stderr.count(said) for result in results] == [1, 0]


def two_workers() -> list[Mapping[str, str | None]]:
    """The variables of TensorFlow's workers."""
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": n}})} for n in range(2)]


@pytest.mark.slow
def test_collectives_of_tensorflow_leave_no_threads_behind() -> None:
    """With a limit each of them left one that slept as long: two in a step, until the process could start no more."""
    code = """
        from pathlib import Path
        from shared.distributed import init
        with init("tensorflow") as world:
            import tensorflow as tf
            def summed(number):
                return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(number))
            step = tf.function(lambda number: world.strategy.run(summed, args=(number,)))
            def threads():
                return len(list(Path("/proc/self/task").iterdir()))
            assert float(step(tf.constant(1.0))) == 2
            before = threads()
            for _ in range(200):
                step(tf.constant(1.0))
            assert threads() - before < 20, threads() - before
    """
    with started(code, two_workers()) as ranks:
        assert [result.returncode for result in finish(ranks)] == [0, 0], ranks[0].stderr


@pytest.mark.parametrize(
    ("given", "statement", "said"),
    [
        ("'horovod', backend='nccl'", "pass", "backend='nccl'"),
        ("'tensorflow', backend='nccl'", "pass", "backend='nccl'"),
        ("", "world.strategy", 'init("tensorflow")'),
    ],
)
def test_what_a_framework_does_not_have_is_named(given: str, statement: str, said: str) -> None:
    with started(
        f"from shared.distributed import init\nwith init({given}) as world:\n    {statement}\n", [{}]
    ) as ranks:
        (result,) = finish(ranks)
    assert result.returncode == 1
    assert said in result.stderr


GROUP = """
import os
import torch.distributed as dist
from shared.distributed import init
dist.init_process_group("gloo")
with init("torch", backend={backend!r}) as world:
    print(int(world.sum([world.rank], "ranks")[0]), dist.get_world_size())
print(dist.is_initialized())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_process_group_that_is_there_is_used_and_left() -> None:
    results = run_ranks(GROUP.format(backend=None))
    assert [result.stdout.splitlines()[-2:] for result in results] == [["1 2", "True"]] * 2, results[0].stderr
    results = run_ranks(GROUP.format(backend="nccl"))
    assert [result.returncode for result in results] == [2, 2]
    told = "".join(result.stderr for result in results)
    assert re.search(r"there is a process group already: gloo, rank \d of 2; nccl, rank \d of 2 is wanted", told), told

"""Scripts that know nothing of allranks run unmodified as the command of a step on two nodes; and how they fail."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.local.support import carrying, run_json

pytestmark = pytest.mark.slow
exhaustive = pytest.mark.exhaustive

TORCH = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    x = torch.full((4,), float(dist.get_rank()))
    dist.all_reduce(x)
    print(f"sum {int(x[0])} of {dist.get_world_size()}\\n", end="", flush=True)  # ranks of torchrun share a log
    dist.destroy_process_group()
"""
HOROVOD = """
    import torch, horovod.torch as hvd
    hvd.init()
    x = hvd.allreduce(torch.full((4,), float(hvd.rank())), op=hvd.Sum)
    print("sum", int(x[0]), "of", hvd.size(), "local", hvd.local_rank(), "of", hvd.local_size())
"""
MPI = """
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    print("sum", world.allreduce(world.Get_rank()), "of", world.Get_size())
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    print("local", node.Get_rank(), "of", node.Get_size())
"""
TENSORFLOW = """
    import json, os
    import tensorflow as tf
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    total = strategy.reduce("SUM", strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
        "SUM", tf.constant(float(rank + 1)))), axis=None)
    print("sum", int(total) // strategy.num_replicas_in_sync, "of", strategy.num_replicas_in_sync)
"""

PYTORCH = "{type: pytorch}"
MPI_2X2 = "{type: mpi, process_count_per_instance: 2}"
PYTHON = "python script.py"
TORCHRUN = (
    "torchrun --nnodes $AZUREML_NODE_COUNT --nproc_per_node 2 --node_rank $NODE_RANK "
    "--master_addr $MASTER_ADDR --master_port $MASTER_PORT script.py"
)


def run_script(folder: Path, script: str, distribution: str, command: str = PYTHON) -> dict[str, Any]:
    """Run a script on two nodes as the one step of a pipeline; its step, with all logs under ``logs``."""
    code = folder / "code"
    code.mkdir()
    (code / "script.py").write_text(textwrap.dedent(script))
    (folder / "pipeline.yaml").write_text(
        textwrap.dedent(f"""
            type: pipeline
            jobs:
              work:
                type: command
                code: ./code
                command: {command}
                environment: azureml:theirs:1
                distribution: {distribution}
                resources: {{instance_count: 2}}
        """)
    )
    document = run_json("pipeline.yaml", cwd=folder, TF_CPP_MIN_LOG_LEVEL="3")
    step = document["steps"]["work"]
    logs = {path.name: path.read_text() for path in sorted((Path(step["folder"]) / "user_logs").glob("std_log*"))}
    return {**step, "logs": logs, "run_id": document["run_id"]}


@pytest.mark.parametrize(
    ("script", "distribution", "command", "said"),
    [
        pytest.param(TORCH, PYTORCH, PYTHON, "sum 1 of 2", id="torch"),
        pytest.param(TORCH, PYTORCH, TORCHRUN, "sum 6 of 4", id="torchrun", marks=exhaustive),
        pytest.param(HOROVOD, MPI_2X2, PYTHON, "sum 6 of 4", id="horovod", marks=exhaustive),
        pytest.param(MPI, MPI_2X2, PYTHON, "sum 6 of 4", id="mpi4py"),
        pytest.param(TENSORFLOW, "{type: tensorflow}", PYTHON, "sum 3 of 2", id="tensorflow", marks=exhaustive),
    ],
)
def test_a_script_of_somebody_else_runs_unmodified(
    script: str, distribution: str, command: str, said: str, tmp_path: Path
) -> None:
    step = run_script(tmp_path, script, distribution, command)
    assert step["status"] == "succeeded", step
    text = "".join(step["logs"].values())
    assert text.count(said) == int(said.rsplit(maxsplit=1)[-1])
    if "local" in text:  # neighbours are those of the same emulated node
        assert text.count("local 0 of 2") == text.count("local 1 of 2") == 2


EXITS = """
    import os
    {start}
    if rank == 1:
        print("about to leave", flush=True)
        os._exit(3)  # sys.exit would let Horovod tell the others, which then fail before this rank has ended
    {wait}
"""
START_TORCH = "import torch, torch.distributed as d; d.init_process_group('gloo'); rank = d.get_rank()"
START_MPI = "from mpi4py import MPI; world = MPI.COMM_WORLD; rank = world.Get_rank()"
START_HOROVOD = "import torch, horovod.torch as hvd; hvd.init(); rank = hvd.rank()"
START_TF = (
    "import json; import tensorflow as tf; s = tf.distribute.MultiWorkerMirroredStrategy(); "
    "rank = json.loads(os.environ['TF_CONFIG'])['task']['index']"
)


@pytest.mark.parametrize(
    ("start", "wait", "distribution", "command", "log"),
    [
        pytest.param(START_TORCH, "d.all_reduce(torch.ones(1))", PYTORCH, PYTHON, 1, id="pytorch"),
        pytest.param(START_TORCH, "d.all_reduce(torch.ones(1))", PYTORCH, TORCHRUN, 0, id="torchrun", marks=exhaustive),
        pytest.param(START_MPI, "world.Barrier()", MPI_2X2, PYTHON, 1, id="mpi"),
        pytest.param(START_HOROVOD, "hvd.allreduce(torch.ones(1))", MPI_2X2, PYTHON, 1, id="horovod", marks=exhaustive),
        pytest.param(
            START_TF,
            "s.run(lambda: tf.distribute.get_replica_context().all_reduce('SUM', tf.ones(1)))",
            "{type: tensorflow}",
            PYTHON,
            1,
            id="tensorflow",
            marks=exhaustive,
        ),
    ],
)
def test_a_rank_that_leaves_a_collective_ends_the_step_and_is_named(
    start: str, wait: str, distribution: str, command: str, log: int, tmp_path: Path
) -> None:
    step = run_script(tmp_path, textwrap.dedent(EXITS).format(start=start, wait=wait), distribution, command)
    assert step["status"] == "failed"
    failure = step["failure"]
    assert (failure["rank"], failure["node"]) == (1, 0 if distribution == MPI_2X2 or command == TORCHRUN else 1)
    assert failure["message"].endswith("ended with exit code 3")
    assert failure["log"].endswith(f"std_log_process_{log}.txt"), "the ranks of a torchrun share its log"
    assert not carrying(f"AZUREML_ROOT_RUN_ID={step['run_id']}")

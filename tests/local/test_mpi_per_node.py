"""MPI with one process on each node, whose command launches the ranks of its node itself, as on Azure ML."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import free_port
from tests.local.support import ROOT, carrying, pipeline, run_json

# The node's index is the rank that MPI gave to its one process; OMPI_COMM_WORLD_NODE_RANK is not it. Port 6000 of
# AZ_BATCH_MASTER_NODE belongs to Azure Batch, so only the address is taken.
TORCHRUN = (
    "torchrun --nnodes $AZUREML_NODE_COUNT --nproc_per_node 2 --node_rank $OMPI_COMM_WORLD_RANK "
    "--master_addr ${AZ_BATCH_MASTER_NODE%%:*} --master_port PORT script.py '${{outputs.out}}'"
)
SCRIPT = """
import json, os, pathlib, sys
from shared.distributed import detect

launch = detect()
seen = {
    "rank": [int(os.environ["RANK"]), launch.rank],
    "world_size": [int(os.environ["WORLD_SIZE"]), launch.world_size],
    "local_rank": [int(os.environ["LOCAL_RANK"]), launch.local_rank],
    "local_world_size": [int(os.environ["LOCAL_WORLD_SIZE"]), launch.local_world_size],
    "node_rank": [int(os.environ["OMPI_COMM_WORLD_RANK"]), launch.node_rank],
    "num_nodes": [int(os.environ["AZUREML_NODE_COUNT"]), launch.num_nodes],
    "launcher": launch.launcher,
    "cwd": os.getcwd(),
}
pathlib.Path(sys.argv[1], str(launch.rank)).write_text(json.dumps(seen))
"""


def per_node(folder: Path, script: str) -> dict[str, Any]:
    """Run a script on 2 nodes x 2 ranks: MPI starts one torchrun on each node."""
    (folder / "code").mkdir()
    (folder / "code/script.py").write_text(script)
    (folder / "work.yaml").write_text(
        json.dumps(  # which is YAML
            {
                "type": "command",
                "name": "work",
                "version": "1",
                "code": "./code",
                "additional_includes": [str(ROOT / "shared")],
                "command": TORCHRUN.replace("PORT", str(free_port())),
                "environment": "azureml:theirs:1",
                "outputs": {"out": {"type": "uri_folder"}},
                "distribution": {"type": "mpi", "process_count_per_instance": 1},
                "resources": {"instance_count": 2},
            }
        )
    )
    run = run_json(
        pipeline(folder, "type: pipeline\njobs: {work: {type: command, component: ./work.yaml}}\n"), cwd=folder
    )
    assert not carrying(str(folder / ".allranks")), "something of the run is left"
    return run


@pytest.mark.slow
def test_each_node_launches_its_own_ranks_and_the_one_that_fails_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    run = per_node(tmp_path, SCRIPT + GIVES_UP.replace("PIPE", str(tmp_path / "pipe")))
    (out,) = tmp_path.glob(".allranks/work/*/outputs/out")
    assert sorted(path.name for path in out.iterdir()) == ["0", "1", "2", "3"]
    for rank in range(4):
        seen = json.loads((out / str(rank)).read_text())
        assert seen.pop("cwd").endswith(f"nodes/{rank // 2}/work")
        assert seen == {
            "rank": [rank] * 2,
            "world_size": [4] * 2,
            "local_rank": [rank % 2] * 2,
            "local_world_size": [2] * 2,
            "node_rank": [rank // 2] * 2,
            "num_nodes": [2] * 2,
            "launcher": "torchrun",
        }
    assert run["exit"] == 1
    failure = run["steps"]["work"]["failure"]
    assert (failure["rank"], failure["node"]) == (3, 1)
    assert failure["message"] == "rank 3 on node 1 ended with exit code 3"
    assert failure["log"].endswith("std_log_process_1.txt"), "the ranks of a torchrun share its log"
    assert "rank three gives up" in Path(failure["log"]).read_text()


GIVES_UP = """
import signal
pipe = os.open("PIPE", os.O_RDWR)
if launch.rank < 3:
    os.write(pipe, b".")
    signal.pause()
assert sum(len(os.read(pipe, 1)) for _ in range(3)) == 3
print("rank three gives up", flush=True)
os._exit(3)
"""

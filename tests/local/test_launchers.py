"""MPI and TensorFlow steps: the variables that Azure ML sets, the right rank blamed, nothing left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from allranks.local.launch.mpi import find_mpirun
from tests.local.support import allranks, carrying, pipeline, run_json, start_allranks, step
from tests.waiting import wait_for

DUMP = "python dump.py ${{outputs.out}}"
DUMP_PY = """
import json, os, pathlib, sys
name = os.environ["AZUREML_PROCESS_NAME"]
pathlib.Path(sys.argv[1], name).write_text(json.dumps({"cwd": os.getcwd(), **os.environ}))
"""


@pytest.fixture(autouse=True)
def mpirun():
    if shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") is None:
        pytest.fail("mpirun is missing; the dev extra brings it")


def dumped(folder: Path, more: str) -> list[dict[str, str]]:
    (folder / "code").mkdir()
    (folder / "code/dump.py").write_text(DUMP_PY)
    text = step(DUMP, outputs="out: {type: uri_folder}", more=f"code: ./code, {more}")
    result = run_json(pipeline(folder, f"type: pipeline\njobs: {{one: {text}}}\n"), cwd=folder)
    assert result["exit"] == 0, result
    return [json.loads(path.read_text()) for path in sorted(Path(result["steps"]["one"]["outputs"]["out"]).iterdir())]


def test_mpi_on_two_nodes(tmp_path):
    folder = tmp_path / "of two words, ü"
    folder.mkdir()
    ranks = dumped(folder, "distribution: {type: mpi, process_count_per_instance: 2}, resources: {instance_count: 2}")
    for rank, seen in enumerate(ranks):
        node, local = divmod(rank, 2)
        expected = {
            "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": str(local),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "AZUREML_PROCESS_NAME": f"rank_{rank}", "AZUREML_NODE_COUNT": "2",
            "AZ_BATCH_MASTER_NODE": "127.0.0.1:6000", "AZ_BATCHAI_MPI_MASTER_NODE": "127.0.0.1",
            "AZ_BATCHAI_NODE_IP": f"127.0.0.{node + 1}",
        }  # fmt: skip
        assert {name: seen.get(name) for name in expected} == expected
        assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "LOCAL_RANK", "NODE_RANK"} & set(seen)
    assert len({seen["cwd"] for seen in ranks}) == 2
    assert len({seen["TMPDIR"] for seen in ranks}) == 2


def test_mpi_on_one_node_has_no_batch_master(tmp_path):
    ranks = dumped(tmp_path, "distribution: {type: mpi, process_count_per_instance: 2}")
    assert len(ranks) == 2
    assert {seen["AZ_BATCHAI_MPI_MASTER_NODE"] for seen in ranks} == {"localhost"}
    assert not any("AZ_BATCH_MASTER_NODE" in seen for seen in ranks)


def test_the_other_form_of_the_mpi_master_can_be_chosen(tmp_path):
    more = "distribution: {type: mpi}, environment_variables: {AZ_BATCHAI_MPI_MASTER_NODE: 10.0.0.4}"
    (seen,) = dumped(tmp_path, more)
    assert seen["AZ_BATCHAI_MPI_MASTER_NODE"] == "10.0.0.4"


def test_tensorflow_workers_and_parameter_servers(tmp_path):
    more = "distribution: {type: tensorflow, parameter_server_count: 1}, resources: {instance_count: 2}"
    ranks = dumped(tmp_path, more)
    configs = [json.loads(seen["TF_CONFIG"]) for seen in ranks]
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
        {"type": "ps", "index": 0},
    ]
    cluster = configs[0]["cluster"]
    assert all(config["cluster"] == cluster and config["environment"] == "cloud" for config in configs)
    assert set(cluster) == {"worker", "ps"}, "Azure ML names no chief"
    assert [address.rpartition(":")[0] for address in cluster["worker"]] == ["127.0.0.1", "127.0.0.2"]
    assert cluster["ps"][0].startswith("127.0.0.1:"), "servers share the first nodes"
    assert len(set(cluster["worker"] + cluster["ps"])) == 3
    assert not any("RANK" in seen for seen in ranks)


def test_parameter_servers_that_wait_for_ever_end_with_the_workers(tmp_path):
    code = 'case $TF_CONFIG in *\'"ps", "index"\'*) sleep 600;; esac; true'
    more = "distribution: {type: tensorflow, parameter_server_count: 2}, resources: {instance_count: 2}"
    result = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(code, more=more)}}}\n"), cwd=tmp_path)
    assert result["exit"] == 0, result
    assert not carrying(f"AZUREML_ROOT_RUN_ID={result['run_id']}")


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        ("{type: pytorch, process_count_per_instance: 2}", "${RANK}"),
        ("{type: mpi, process_count_per_instance: 2}", "${OMPI_COMM_WORLD_RANK}"),
    ],
)
def test_a_rank_that_exits_with_3_is_named_and_nothing_is_left(tmp_path, kind, who):
    marker = f"MARK{tmp_path.name}{os.getpid()}"
    code = f'if [ "{who}" = 3 ]; then echo rank three gives up; exit 3; fi; sleep 600'
    more = f"distribution: {kind}, resources: {{instance_count: 2}}, environment_variables: {{MARK: {marker}}}"
    result = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(code, more=more)}}}\n"), cwd=tmp_path)
    failure = result["steps"]["one"]["failure"]
    assert (failure["rank"], failure["node"]) == (3, 1)
    assert failure["message"] == "rank 3 on node 1 ended with exit code 3"
    assert failure["last_lines"] == ["rank three gives up"]
    assert Path(failure["log"]).name == "std_log_process_3.txt"
    assert not carrying(marker)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_whose_daemon_is_killed_fails_the_step(tmp_path, number):
    """mpirun 5.0.11 then ends with 0, and the step would be taken for one that succeeded, now and in every later run."""
    marker = f"MARK{tmp_path.name}{os.getpid()}"
    more = f"distribution: {{type: mpi}}, resources: {{instance_count: 2}}, environment_variables: {{MARK: {marker}}}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('sleep 300', more=more)}}}\n")
    engine = start_allranks("run", file, "--json", cwd=tmp_path)
    wait_for(lambda: sum(name_of(pid) == "sleep" for pid in carrying(marker)) == 2)
    daemon = next(pid for pid in carrying(str(tmp_path / ".allranks")) if name_of(pid) in {"prted", "orted"})
    os.kill(daemon, number)
    document = json.loads(engine.communicate()[0])
    assert engine.returncode == 1
    assert document["steps"]["one"]["status"] == "failed", document
    assert not carrying(marker)


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_mpirun_is_looked_for_on_path_and_beside_this_python(tmp_path, monkeypatch):
    from allranks.errors import CannotRunHereError

    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CannotRunHereError) as raised:
        find_mpirun({"PATH": str(tmp_path / "bin")})
    assert "pip install" in raised.value.hint
    (tmp_path / "mpirun").touch(mode=0o755)
    assert find_mpirun({"PATH": str(tmp_path / "bin")}) == str(tmp_path / "mpirun")


def test_a_tensorflow_step_with_two_processes_on_a_node_is_refused(tmp_path):
    more = "distribution: {type: tensorflow}, resources: {instance_count: 2}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('true', more=more)}}}\n")
    done = allranks("run", file, "--scale", "one=2x2", cwd=tmp_path)
    assert done.returncode == 2
    assert "one worker on each node" in done.stderr

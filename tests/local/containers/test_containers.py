"""Steps in containers, with real ones: the contract, who fails, and that nothing is left after any kill."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.containers.conftest import Client
from tests.local.support import allranks, carrying, command, environ, late, pipeline, run_json
from tests.waiting import wait_for

RANKS = "distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}"


def contained(client: Client, command_line: str, more: str = "") -> str:
    """A command step in the image of the tests, in YAML flow style."""
    parts = ["type: command", f"command: {json.dumps(command_line)}", f"environment: {{image: '{client.image}'}}", more]
    return "{" + ", ".join(filter(None, parts)) + "}"


def one_step(client: Client, folder: Path, command_line: str, more: str = "") -> Path:
    return pipeline(folder, f"type: pipeline\njobs: {{one: {contained(client, command_line, more)}}}\n")


def run(client: Client, file: Path, *more: str) -> dict[str, Any]:
    result = run_json(file, f"--containers={client.name}", *more, cwd=file.parent, **client.variables)
    assert client.containers(file.parent) == []
    return result


def logs(result: dict[str, Any], step: str = "one") -> dict[str, str]:
    folder = Path(result["steps"][step]["folder"]) / "user_logs"
    return {path.name: path.read_text() for path in folder.iterdir()}


DUMP = """
import json, os, pathlib, socket, sys
out, data = sys.argv[1:]
pathlib.Path("/tmp/mine").write_text(os.environ["RANK"]) if os.environ["LOCAL_RANK"] == "0" else None
try:
    pathlib.Path(data).write_text("changed")
except OSError as error:
    refused = error.strerror
seen = {"host": socket.gethostname(), "address": socket.gethostbyname(socket.gethostname()), "cwd": os.getcwd(),
        "other": socket.gethostbyname("node0"), "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
        "tmp": sorted(os.listdir("/tmp")), "refused": refused, "data": pathlib.Path(data).read_text(),
        "uid": os.getuid(), "files": sorted(os.listdir(".")), "bin": os.path.exists("/opt"), **os.environ}
pathlib.Path(out, os.environ["RANK"] + ".json").write_text(json.dumps(seen))
"""


def test_the_contract_on_two_nodes(client, tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_CALLER", "secret")
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/dump.py").write_text(DUMP)
    (tmp_path / "in, put").mkdir()  # a comma divides the fields of --mount
    (tmp_path / "in, put/data.txt").write_text("data")
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          one:
            type: command
            code: ./code
            command: python dump.py '${{{{outputs.out}}}}' '${{{{inputs.data}}}}'
            environment: {{image: {client.image}}}
            inputs: {{data: {{type: uri_file, path: "./in, put/data.txt"}}, group_x: 'a "b" $c'}}
            outputs: {{out: {{type: uri_folder}}}}
            distribution: {{type: pytorch, process_count_per_instance: 2}}
            resources: {{instance_count: 2, shm_size: 70m, docker_args: "--privileged --tmpfs /opt"}}
            environment_variables: {{LINES: "one\\ntwo", PWD_OF: here}}
        """,
    )
    result = run(client, file)
    assert result["exit"] == 0, result
    out = Path(result["steps"]["one"]["outputs"]["out"])
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(4)]
    for rank, seen in enumerate(ranks):
        node, local = divmod(rank, 2)
        expected = {
            "RANK": str(rank), "LOCAL_RANK": str(local), "NODE_RANK": str(node), "WORLD_SIZE": "4",
            "MASTER_ADDR": "127.0.0.1", "AZUREML_CR_NODE_RANK": str(node), "AZUREML_PROCESS_NAME": f"rank_{rank}",
            "host": f"node{node}", "address": f"127.0.0.{node + 1}", "other": "127.0.0.1", "shm": 70 << 20, "bin": True,
            "refused": "Read-only file system", "data": "data", "LINES": "one\ntwo", "files": ["dump.py", "logs", "outputs"],
            "AZUREML_PARAMETER_group_x": 'a "b" $c', "https_proxy": "http://proxy:1", "uid": os.getuid(),
        }  # fmt: skip
        assert {name: seen.get(name) for name in expected} == expected
        assert seen["TMPDIR"] == "/tmp"  # noqa: S108
        assert "OF_THE_CALLER" not in seen
        assert seen["PWD"] == seen["cwd"]
    assert len({seen["cwd"] for seen in ranks}) == 2
    assert (out / "0.json").stat().st_uid == os.getuid()
    assert (out / "0.json").stat().st_mode & 0o777 == 0o644
    tmp = Path(result["steps"]["one"]["folder"], "nodes")
    assert [(tmp / str(node) / "tmp/mine").read_text() for node in range(2)] == ["0", "2"]
    again = run(client, file)
    assert again["steps"]["one"]["reused_from"] == result["run_id"]


def test_the_rank_that_failed_is_named_and_a_retry_is_a_new_container(client, tmp_path):
    line = "echo rank $RANK on $HOSTNAME >&2; if [ $RANK = 3 ]; then exit 7; fi; sleep 60"
    result = run(client, one_step(client, tmp_path, line, RANKS), "--retries", "1")
    failure = result["steps"]["one"]["failure"]
    assert result["exit"] == 1
    assert (failure["rank"], failure["node"]) == (3, 1)
    assert "rank 3 on node 1 ended with exit code 7" in failure["message"]
    assert result["steps"]["one"]["attempts"] == 2
    assert logs(result)["std_log_process_3.txt"] == "rank 3 on node1\n"


def test_what_the_client_says_is_quoted_where_a_container_does_not_start(client, tmp_path):
    file = one_step(
        client, tmp_path, "true", "resources: {docker_args: --tmpfs /bin}"
    )  # where something is mounted already
    result = run(client, file)
    failure = result["steps"]["one"]["failure"]
    assert result["exit"] == 1
    assert failure["message"] == "the command ended with exit code 125"
    assert "duplicate mount" in failure["last_lines"][0].lower()


def test_stacks_are_asked_for_before_the_time_is_up(client, tmp_path):
    code = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1); print(1, flush=True); signal.pause()"
    file = one_step(client, tmp_path, f"python -c '{code}'; true", "limits: {timeout: 600}")
    called = command("run", file, "--json", f"--containers={client.name}")
    variables = environ(**client.variables, **late(tmp_path / "jumps"))
    engine = subprocess.Popen(called, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True)
    found = tmp_path.glob
    wait_for(lambda: any(log.read_text() for log in found(".allranks/runs/*/steps/one/user_logs/*")), [engine])
    (tmp_path / "jumps/0").touch()
    result = json.loads(engine.communicate()[0])
    assert "not finished after limits.timeout = 600 s" in result["steps"]["one"]["failure"]["message"]
    # bash, which has the command in front, ends by the signal as it does without containers; Python has written.
    assert "most recent call first" in logs(result)["std_log.txt"]


def test_parameter_servers_are_ended_after_the_workers(client, tmp_path):
    line = 'case "$TF_CONFIG" in *\'"type": "ps"\'*) sleep 100;; *) echo $HOSTNAME;; esac'
    more = (
        "distribution: {type: tensorflow, worker_count: 2, parameter_server_count: 1}, resources: {instance_count: 2}"
    )
    result = run(client, one_step(client, tmp_path, line, more))
    assert result["exit"] == 0, result
    assert [logs(result)[f"std_log_process_{rank}.txt"] for rank in range(3)] == ["node0\n", "node1\n", ""]


def test_a_sweep_has_its_trials_in_containers(client, tmp_path):
    line = (
        """mkdir -p outputs; echo '{"step": 1, "metrics": {"m": ${{inputs.x}}}}' >> outputs/metrics.jsonl; hostname"""
    )
    trial = contained(client, line, "inputs: {x: {type: number, default: 1}}")
    search = (
        "sampling_algorithm: grid, search_space: {x: {type: choice, values: [1, 2]}}, limits: {max_total_trials: 2}, "
        "objective: {goal: maximize, primary_metric: m}"
    )
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{tune: {{type: sweep, trial: {trial}, {search}}}}}\n")
    result = run(client, file)
    assert result["exit"] == 0, result
    assert result["steps"]["tune"]["metrics"]["m"] == 2
    assert logs(result, "tune") == {"std_log.txt": "node0\n"}


@pytest.fixture
def running(client, tmp_path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A run of 2 nodes x 2 ranks in containers, with children that left their group or emptied their environment."""
    line = "setsid sleep 321 & env -i /bin/sleep 321 & trap '' TERM; echo started; sleep 321; true"
    more = f"environment_variables: {{PASSPHRASE: in{os.getpid()}}}, {RANKS}"
    engine = subprocess.Popen(
        command("run", one_step(client, tmp_path, line, more), f"--containers={client.name}"),
        cwd=tmp_path,
        env=environ(**client.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob(".allranks/runs/*/steps/one/user_logs/*"))) == 4)
        wait_for(lambda: len(client.containers(tmp_path)) == 2)
        yield engine, f"in{os.getpid()}"
    finally:
        engine.kill()
        engine.communicate()
        for name in client.containers(tmp_path):
            client.ask("rm", "--force", name)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_engine_leaves_no_container(running, client, tmp_path, number):
    engine, mark = running
    assert carrying(mark)
    engine.send_signal(number)
    engine.wait()
    wait_for(lambda: client.containers(tmp_path) == [])
    assert carrying(mark) == []


def clients_of(folder: Path) -> list[int]:
    """The clients that carry variables into the containers of runs below a folder; other tests may have some too."""
    found = carrying(str(folder))
    return [pid for pid in found if b"--env-file" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_container_that_somebody_kills_ends_the_step(running, client, tmp_path):
    engine, mark = running
    assert all(name.startswith("allranks-2") for name in client.containers(tmp_path))
    clients = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in clients_of(tmp_path)]
    assert clients
    assert not any(mark.encode() in line for line in clients)  # values are on no command line
    client.ask("kill", next(name for name in client.containers(tmp_path) if "-node1-" in name))
    assert engine.wait() == 1
    assert client.containers(tmp_path) == []
    (state,) = tmp_path.glob(".allranks/runs/*/steps/one/step.json")
    assert "exit code 137 (killed by SIGKILL)" in json.loads(state.read_text())["failure"]["message"]


def test_a_client_that_dies_takes_its_container_along(running, client, tmp_path):
    engine, mark = running
    program = next(pid for pid in clients_of(tmp_path) if Path(f"/proc/{pid}/exe").readlink().name == client.name)
    os.kill(program, signal.SIGKILL)
    assert engine.wait() == 1
    assert client.containers(tmp_path) == []
    assert carrying(mark) == []


def tree_with(folder: Path, *programs: str) -> Path:
    """A folder with programs of this machine and their libraries, for what runs while an image is built."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    for path in {*programs, *re.findall(r"(/\S+) \(0x", told)}:
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for name in ("usr", "proc", "sys", "dev", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    return folder


@pytest.mark.slow
def test_an_image_is_built_once_from_its_context_and_from_its_conda_file(client, tmp_path):
    """``conda`` is a stand-in that makes the folder: what is tried is what is built from what, and how often."""
    tree = tree_with(tmp_path / "tree", "/bin/sh", "/bin/bash", "/bin/mkdir", "/bin/cp")
    (tree / "etc").mkdir()
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    conda = '#!/bin/bash\n[ "$1 $2" = "env create" ] && /bin/mkdir -p "$4/bin" && /bin/cp "$6" "$4/bin/listed.yaml"\n'
    (tree / "conda").mkdir()
    (tree / "conda/conda").write_text(conda)
    (tree / "conda/conda").chmod(0o755)
    client.import_image(f"{client.image}-conda", tree, "ENV PATH=/conda:/usr/bin:/bin")
    (tmp_path / "context").mkdir()
    (tmp_path / "context/Containerfile").write_text(f"FROM {client.image}\nCOPY note.txt /note.txt\nENV NOTE=there\n")
    (tmp_path / "context/note.txt").write_text("of the context")
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          built:
            type: command
            command: cat /note.txt; echo " $NOTE"
            environment: {{build: {{path: ./context, dockerfile_path: Containerfile}}}}
          conda:
            type: command
            command: cat $AZUREML_CONDA_ENVIRONMENT_PATH/bin/listed.yaml; echo $PATH $OF_CONDA
            environment:
              image: {client.image}-conda
              conda_file: {{name: theirs, dependencies: [python=3.11], variables: {{OF_CONDA: set}}}}
        """,
    )
    first = run(client, file)
    assert first["exit"] == 0, first
    assert logs(first, "built")["std_log.txt"] == "of the context there\n"
    assert "python=3.11" in logs(first, "conda")["std_log.txt"]
    assert "/azureml-envs/environment/bin:/conda:/usr/bin:/bin set" in logs(first, "conda")["std_log.txt"]
    keys = [path.name.rpartition("-")[2] for path in tmp_path.glob(".allranks/images/*") if path.is_dir()]
    assert len(keys) == 2
    done = allranks("run", file, f"--containers={client.name}", "--no-cache", cwd=tmp_path, **client.variables)
    assert (done.returncode, ": build" in done.stderr) == (0, False)
    (tmp_path / "context/note.txt").write_text("changed")
    assert logs(run(client, file), "built")["std_log.txt"] == "changed there\n"
    keys = [path.name.rpartition("-")[2] for path in tmp_path.glob(".allranks/images/*") if path.is_dir()]
    client.ask("image", "rm", "--force", *(f"allranks/environment:{key}" for key in keys), f"{client.image}-conda")


def test_what_cannot_run_in_a_container_is_refused_by_name(client, tmp_path):
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        jobs:
          reduce: {contained(client, "true", "distribution: {type: mpi}")}
          bare: {{type: command, command: "true", environment: azureml:theirs:1}}
        """,
    )
    done = allranks("run", file, "--containers", client.name, cwd=tmp_path, **client.variables)
    assert done.returncode == 2
    assert "reduce: cannot run in a container: distribution mpi: mpirun in one container" in done.stderr
    assert "bare: cannot run in a container: no image is known of its environment azureml:theirs:1" in done.stderr
    assert not (tmp_path / ".allranks/runs").exists() or not list((tmp_path / ".allranks/runs").iterdir())


def test_a_resumed_run_is_in_containers_again(client, tmp_path):
    flag = tmp_path / "flag"
    file = one_step(
        client,
        tmp_path,
        "echo $HOSTNAME; test -e ${{inputs.flag}}/there",
        "inputs: {flag: {type: uri_folder, path: ./flag}}",
    )
    flag.mkdir()
    assert run(client, file)["exit"] == 1
    (flag / "there").touch()
    result = run_json("--resume", "latest", cwd=tmp_path, **client.variables)
    assert result["exit"] == 0, result
    assert logs(result)["std_log.txt"] == "node0\n"


@pytest.mark.slow
def test_ranks_of_two_containers_meet_over_gloo_and_log_to_mlflow(client, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/sum.py").write_text(
        "import torch, mlflow, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(1) * dist.get_rank(); dist.all_reduce(x)\n"
        "if dist.get_rank() == 0: mlflow.log_metric('total', x.item())\n"
        "dist.barrier(); dist.destroy_process_group()\n"
    )
    more = "code: ./code, distribution: {type: pytorch}, resources: {instance_count: 3}"
    result = run(client, one_step(client, tmp_path, "python sum.py", more))
    assert result["exit"] == 0, result
    assert result["steps"]["one"]["metrics"]["total"] == 3.0

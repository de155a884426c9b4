"""GPUs are shared out among emulated nodes, and where there are too few of them the user hears so."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.errors import CannotRunHereError
from allranks.local import machine
from allranks.local.engine import run_plan
from allranks.local.fingerprint import interpreter_digest
from allranks.local.folders import RunsHome
from allranks.local.memory_room import RANK_BYTES, refuse_crowded
from allranks.local.options import RunObserver, RunOptions
from allranks.local.plan import RunPlan
from allranks.local.resources.memory_kills import MemoryLimit, find_memory_limit
from allranks.performing import prepare_run
from allranks.request import RunRequest
from shared.distributed.address import spare_ports
from tests.local.support import allranks, environ, pipeline, step

FILES = ["null", "nvidia10", "nvidia0", "nvidia2", "nvidiactl", "nvidia-uvm"]


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        (None, ("0", "2", "10")),
        ("", ()),
        ("-1", ()),
        ("-1,0", ()),
        ("1, 0", ("1", "0")),
        ("GPU-5f,MIG-2,-1,3", ("GPU-5f", "MIG-2")),
    ],
)
def test_the_gpus_that_cuda_would_see(chosen: str | None, found: tuple[str, ...]) -> None:
    assert machine.visible_gpus(chosen, FILES) == found


@pytest.mark.parametrize(
    ("gpus", "nodes", "processes", "shares"),
    [
        ((), 2, 2, None),
        (("0", "1", "2", "3"), 2, 2, ("0,1", "2,3")),
        (("0", "1", "2"), 2, 1, ("0", "1")),
        (("0", "1", "2"), 2, 2, ("", "")),
    ],
)
def test_emulated_nodes_share_the_gpus(
    gpus: tuple[str, ...], nodes: int, processes: int, shares: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "usable_gpus", lambda: gpus)
    assert machine.gpu_shares(nodes, processes) == shares
    assert bool(machine.gpu_shortage(nodes, processes)) == (shares == ("", ""))


def test_too_few_gpus_for_the_ranks_are_said_before_the_run(tmp_path) -> None:
    done = allranks(
        "run", "check_cluster", "--scale", "check_cluster=2x2", "--dry-run", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0,1"
    )
    assert "check_cluster: 2 node(s) x 2 rank(s) on 2 GPU(s)" in done.stderr
    done = allranks(
        "run", "check_cluster", "--scale", "check_cluster=2x1", "--dry-run", cwd=tmp_path, CUDA_VISIBLE_DEVICES="0,1"
    )
    assert "GPU(s)" not in done.stderr


def test_what_is_installed_between_two_runs_of_one_notebook_is_seen(tmp_path):
    """The interpreter was looked at once in the life of the process: an upgraded package reused the old results."""
    python = tmp_path / "bin" / "python"
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    before = interpreter_digest(python)
    (packages / "torch-2.9.dist-info").mkdir()
    run_plan(RunPlan("nothing", {}), RunOptions(RunsHome(tmp_path / "home"), python, RunRequest("", "")), RunObserver())
    assert interpreter_digest(python) != before


def test_a_step_may_have_as_many_ranks_as_the_memory_has_room_for(tmp_path) -> None:
    request = RunRequest("check_cluster", str(tmp_path), scale={"": (2, 2)})
    plan = prepare_run(request, RunsHome(tmp_path / "runs")).plan
    refuse_crowded(plan, MemoryLimit(4 * RANK_BYTES, "the machine"))
    with pytest.raises(
        CannotRunHereError, match=r"2 x 2 ranks are 4 processes .* its control group has 0\.4 GB"
    ) as caught:
        refuse_crowded(plan, MemoryLimit(4 * RANK_BYTES - 1, "its control group"))
    assert caught.value.hint.startswith("At most 3 ranks, for example --scale check_cluster=1x3;")


@pytest.mark.skipif(find_memory_limit().size >= 10_000 * RANK_BYTES, reason="they have room here, and would start")
def test_a_scale_that_this_machine_cannot_hold_starts_nothing_and_can_be_looked_at(tmp_path) -> None:
    """A slip such as 64x64 started 4,096 interpreters: two cores and 24 GB stood still for a quarter of an hour."""
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['RANK'])\n")
    done = allranks("run", "train.py", "--scale", "100x100", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "step train: 100 x 100 ranks are 10,000 processes here" in done.stderr
    assert not (tmp_path / ".allranks/runs").exists(), "nothing was started"
    done = allranks("run", "train.py", "--scale", "100x100", "--dry-run", cwd=tmp_path)
    assert "train: 100 x 100, would run" in done.stdout


def test_what_one_engine_hands_out_no_other_does_until_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "port_range", lambda _: (9000, 9100))  # no other test looks there
    monkeypatch.setattr(secrets, "randbelow", lambda _: 0)  # both begin at the same port
    ours, theirs = machine.FreePorts(), machine.FreePorts()
    first = ours.row(3)
    second = theirs.row(3)
    assert second.first == first.first + 3, "nobody listens there yet, and it is ours all the same"
    first.close()
    assert machine.FreePorts().row(3).first == first.first
    second.close()


@pytest.mark.parametrize(
    ("ephemeral", "expected"),
    [
        ("32768\t60999\n", (10100, 19998)),
        ("", (10100, 19998)),
        ("15000 64000", (7500, 14999)),
        ("10000 65000", (5000, 9999)),
        ("1024 65535", (10100, 19998)),
    ],
)
def test_ports_lie_below_the_ephemeral_ones(ephemeral: str, expected: tuple[int, int]) -> None:
    assert machine.port_range(ephemeral) == expected


def test_ports_differ_from_those_that_jobs_derive_from_their_ids() -> None:
    first = spare_ports({"AZUREML_RUN_ID": "one"}, "mpi", 20000)[0]
    assert machine.port_range("32768 60999")[1] < first


# The range of both engines has room for two rows of main port and control plane, and both begin at its first port.
NARROW = """\
import secrets, sys
from allranks.local import machine
from allranks.cli.main import main
machine.port_range = lambda _: (9500, 9504)
secrets.randbelow = lambda _: 0
sys.exit(main())
"""


# Both ranks are there at once, however far apart a busy machine starts them.
BOTH = "touch {folder}/{own}; until [ -e {folder}/{other} ]; do sleep 0.1; done; echo $MASTER_PORT"


@pytest.mark.slow
def test_engines_that_start_together_have_ports_of_their_own(tmp_path: Path) -> None:
    engines = []
    for own, other in ("ab", "ba"):
        text = step(BOTH.format(folder=tmp_path, own=own, other=other), more="distribution: {type: pytorch}")
        target = str(pipeline(tmp_path, f"type: pipeline\njobs: {{ports: {text}}}", f"{own}.yaml"))
        run = [sys.executable, "-c", NARROW, "run", target, "--json"]
        engines.append(subprocess.Popen(run, env=environ(), cwd=tmp_path, stdout=subprocess.PIPE))
    documents = [json.loads(engine.communicate()[0])["steps"]["ports"] for engine in engines]
    logs = [Path(document["folder"]) / "user_logs/std_log_process_0.txt" for document in documents]
    assert sorted(log.read_text() for log in logs) == ["9500\n", "9502\n"], documents


TAKES_ITS_PORT = """
import os, socket, sys
from pathlib import Path
port, seen = int(os.environ["MASTER_PORT"]), Path(sys.argv[1])
if not seen.exists() or sys.argv[2] == "always":
    other = socket.create_server(("", port))
with seen.open("a") as file:
    file.write(f"{port}\\n")
"""
LISTENS = 'socket.create_server(("", port)).close()'
MEETS = "import torch.distributed as dist; dist.init_process_group('gloo'); dist.destroy_process_group()"


@pytest.mark.parametrize(
    ("how", "attempts", "script"),
    [("once", 2, LISTENS), ("always", 3, LISTENS), pytest.param("once", 2, MEETS, marks=pytest.mark.exhaustive)],
)
def test_a_port_in_use_is_a_cause_of_its_own_and_other_ports_are_tried(
    how: str, attempts: int, script: str, tmp_path: Path
) -> None:
    (tmp_path / "takes.py").write_text(TAKES_ITS_PORT + script)
    seen = tmp_path / "seen"
    asked = ("run", "takes.py", "--scale", "1x1", "--retries", "0", "--distribution", "pytorch", "--json")
    found = json.loads(allranks(*asked, "--", seen, how, cwd=tmp_path).stdout)["steps"]["takes"]
    assert found["attempts"] == attempts
    assert found["restart_causes"] == ["port in use"] * (attempts - 1)
    assert len(set(seen.read_text().split())) == attempts
    assert (found["failure"] or {}).get("cause", "") == ("" if how == "once" else "port in use")

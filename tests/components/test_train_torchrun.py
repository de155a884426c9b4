"""train_torchrun's command, as its YAML has it: torchrun on each node, with the variables that Azure ML sets there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from allranks.spec.expressions import render_command
from tests.components.training import check_times, furthest, lines, train, weights, write_digits
from tests.faults import arm
from tests.helpers import ROOT, azure_variables, clean_environment, free_port
from tests.waiting import wait_for

FOLDER = ROOT / "components" / "train_torchrun"


def snapshot(folder: Path) -> Path:
    """What a node sees: the component's folder and its includes."""
    document = yaml.safe_load((FOLDER / "component.yaml").read_text())
    folder.mkdir()
    for include in document["additional_includes"]:
        source = (FOLDER / include).resolve()
        target = folder / source.name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    return folder


def command(values: dict[str, object]) -> str:
    """The YAML's command with values for its inputs and outputs; optional parts without a value left out."""
    document = yaml.safe_load((FOLDER / "component.yaml").read_text())
    texts = {name: port.get("default") for name, port in document["inputs"].items()} | values
    known = {name: None if value is None else str(value) for name, value in texts.items()}
    return render_command(document["command"], known, {name: str(values[name]) for name in document["outputs"]})


OPTIONS: dict[str, object] = {"epochs": 2, "batch_size": 16, "log_every": 1, "checkpoint_every": 4}
STEPS = list(range(1, 2 * (280 // 16) + 1))


@contextmanager
def two_nodes(
    folder: Path, data: Path, fault: tuple[str, int, int], **values: object
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the command on two nodes, in folders ``node0`` and ``node1``, with a fault once; kill what is left at the end.

    The fault is its kind, step and rank, as of `fault_at`.
    """
    out = folder / "out"
    outputs = {"model": out / "model", "checkpoints": out / "checkpoints", "metrics": out / "metrics"}
    line = command({"data": data, **OPTIONS, **outputs, **values})
    port, path = free_port(), f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where torchrun is
    nodes, armed = [], arm(folder / "fault", *fault)
    try:
        for node in range(2):
            environment = (
                clean_environment(azure_variables(node, 2, 1, port)) | {"PYTHONPATH": "", "PATH": path} | armed
            )
            working = snapshot(folder / f"node{node}")
            nodes.append(subprocess.Popen(["bash", "-c", line], cwd=working, env=environment))
        yield nodes
    finally:
        for working in folder.glob("node?"):
            kill_all_in(working)
        for one in nodes:
            one.wait()


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_two_nodes_one_rank_of_which_is_killed_end_with_the_weights_of_one_rank(processes: int, tmp_path: Path) -> None:
    data = write_digits(tmp_path / "data", rows=400)
    with two_nodes(tmp_path, data, ("SIGKILL", 14, 2 * processes - 1), processes_per_node=processes) as nodes:
        assert [node.wait() for node in nodes] == [0, 0]
    check_times(tmp_path / "out" / "metrics", ranks=2 * processes)
    check_result(tmp_path, data)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_with_min_nodes_one_node_goes_on_without_the_other_with_the_same_rows(tmp_path: Path) -> None:
    data = write_digits(tmp_path / "data", rows=400)
    with two_nodes(tmp_path, data, ("nothing", 14, 1), processes_per_node=1, min_nodes=1) as nodes:
        wait_for((tmp_path / "fault" / "happened").exists, nodes)
        kill_all_in(tmp_path / "node1")
        assert nodes[0].wait() == 0
    check_result(tmp_path, data)


def check_result(folder: Path, data: Path) -> None:
    """See that each step was reported once, and that the weights are those of one rank that nobody has disturbed."""
    steps = [line["step"] for line in lines(folder / "node0") if "loss" in line["metrics"]]
    assert steps == STEPS, "each step is reported once, though some were made twice"
    train(data, folder / "alone", **OPTIONS)
    assert furthest(weights(folder / "out"), weights(folder / "alone")) < 1e-5


def kill_all_in(folder: Path) -> None:
    """Kill what runs in a node's folder: torchrun and its ranks, as they go with their machine."""
    for working in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if working.readlink().is_relative_to(folder):
                os.kill(int(working.parent.name), signal.SIGKILL)


def test_the_folder_holds_no_copy_of_the_script() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.name != "__pycache__") == [
        ".amlignore",
        "component.yaml",
        "settings.py",
    ]

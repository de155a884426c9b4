"""`allranks run train.py`: real ranks of a script that knows nothing of allranks, from the folder where a user stands."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import allranks

PLAIN = """\
import argparse, os
import torch.distributed  # static reading sees it; the test replaces the module
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--data")
parser.add_argument("--out", default="results")
args = parser.parse_args()
rank = int(os.environ["RANK"])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} on node {os.environ['NODE_RANK']}, {args.epochs} epochs")
if args.data:
    print("read", open(args.data).read().strip(), os.path.isabs(args.data))
if rank == 0:
    os.makedirs(args.out)
    open(os.path.join(args.out, "model.txt"), "w").write("weights")
"""


def run_json(*arguments: str, cwd: Path, after: str = "") -> dict[str, Any]:
    """The one document of a run, with its exit code; ``after`` is for the script."""
    done = allranks("run", *arguments, "--json", *(["--", *after.split()] if after else []), cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return {**json.loads(done.stdout), "exit": done.returncode}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a script in ``src`` that imports a stand-in for torch, and data beside that folder."""
    for name in ("src/torch/distributed", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src/torch/__init__.py").touch()
    (tmp_path / "src/torch/distributed/__init__.py").touch()
    (tmp_path / "src/train.py").write_text(PLAIN)
    (tmp_path / "data/numbers.csv").write_text("7\n")
    return tmp_path


def test_each_line_is_printed_with_its_rank_and_what_is_written_is_named(folder: Path) -> None:
    done = allranks(
        "run", "src/train.py", "--scale", "2x2", "--", "--epochs", "3", "--data", "data/numbers.csv", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"[rank {rank}] rank {rank} of 4 on node {rank // 2}, 3 epochs" in done.stdout
    assert done.stdout.count("read 7 True") == 4
    assert "distribution pytorch: import torch.distributed, train.py:2" in done.stderr
    assert f"--data data/numbers.csv is read where it lies: {folder / 'data/numbers.csv'}" in done.stderr
    assert "written on node 0" in done.stdout
    assert "nodes/0/work: results/ (1 file)" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == [".allranks", "data", "src"]
    assert not list(folder.glob("src/results")), "the user's own folder stays as it is"


def test_the_document_says_the_same_and_nothing_is_reused(folder: Path) -> None:
    first, second = (run_json("src/train.py", "--scale", "1x2", cwd=folder) for _ in range(2))
    assert (first["exit"], first["steps"]["train"]["processes"]) == (0, 2)
    assert second["steps"]["train"]["reused"] is False
    (written,) = first["written"].values()
    assert written["files"] == ["results/model.txt"]
    assert (Path(written["folder"]) / "results/model.txt").read_text() == "weights"


def test_a_resumed_run_has_the_arguments_of_the_first(folder: Path) -> None:
    assert run_json("--scale", "1x2", "src/train.py", cwd=folder, after="--epochs 5")["exit"] == 0
    (folder / "src/train.py").unlink()
    done = allranks("run", "--resume", "latest", cwd=folder)
    assert (done.returncode, done.stdout.count("5 epochs")) == (0, 2), done.stderr
    assert "src/train.py is not there any more: it is taken from run" in done.stderr
    other = allranks("run", "--resume", "latest", "--", "--epochs", "6", cwd=folder)
    assert (other.returncode, "can be resumed as it was, but not with" in other.stderr) == (2, True), other.stderr


def test_the_other_forms(folder: Path) -> None:
    """A module, a command of a shell, and a notebook, whose lines for IPython are left out, and named."""
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {
            "cell_type": "code",
            "source": ["%matplotlib inline\n", "import sys\n", "if len(sys.argv) > 1:\n", "    !ls\n"],
        },
        {"cell_type": "code", "source": "display('the notebook has ' + sys.argv[1])"},
    ]
    (folder / "look.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    (folder / "run.sh").write_text("python src/train.py --epochs 4\n")
    notebook = allranks("run", "look.ipynb", "--", "--words", cwd=folder)
    assert (notebook.returncode, "the notebook has --words" in notebook.stdout) == (0, True), notebook.stderr
    assert "left out of look.ipynb: cell 1: !ls" in notebook.stderr
    module = run_json("-m", "train", "--code", "src", "--dry-run", cwd=folder, after="--epochs 2")["steps"]["train"]
    assert (module["command"], module["distribution"]) == ("python -m train --epochs 2", "pytorch")
    shell = run_json("--command", "bash run.sh", "--scale", "1x2", "--dry-run", cwd=folder)["steps"]["run"]
    assert (shell["command"], shell["distribution"], shell["processes"]) == ("bash run.sh", "pytorch", 2)


@pytest.mark.parametrize(
    ("source", "distribution"),
    [
        ("import horovod.torch as hvd\nimport torch.distributed", "mpi"),
        ("import tensorflow as tf\ns = tf.distribute.MultiWorkerMirroredStrategy()", "tensorflow"),
        ("import tensorflow as tf\ns = tf.distribute.MirroredStrategy()", None),
        ("from accelerate import Accelerator", "pytorch"),
        ("import lightning as L", "pytorch"),
        ("from helper import start", "pytorch"),
        ("import torch.multiprocessing as mp, torch.distributed as dist\nmp.spawn(print, nprocs=2)", None),
        (
            "import torch\ntorch.distributed.init_process_group\ntorch.multiprocessing.start_processes(print, nprocs=2)",
            None,
        ),
        ("import os\nprint(os.environ['LOCAL_RANK'])", "pytorch"),
        ("print(1)", None),
    ],
)
def test_the_distribution_is_read_and_nothing_imported(tmp_path: Path, source: str, distribution: str | None) -> None:
    (tmp_path / "helper.py").write_text("import torch\ndef start():\n    torch.distributed.init_process_group()\n")
    (tmp_path / "main.py").write_text(f"{source}\nraise SystemExit('imported')\n")
    assert run_json("main.py", "--dry-run", cwd=tmp_path)["steps"]["main"]["distribution"] == distribution


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tarin.py"], "tarin.py' is not there.\nhint: Scripts in"),
        (["broken.py"], "broken.py:2: '(' was never closed: print(\n"),
        (["plain.py", "--scale", "2x"], "--scale '2x' is not NODESxPROCESSES, nor"),
        (["plain.py", "--scale", "2x2"], "plain.py runs as one process: nothing in it divides work among processes."),
        (["plain.py", "--distribution", "torch"], "--distribution 'torch' is none of pytorch, mpi, tensorflow, none."),
        (["plain.py", "epochs=3"], "hint: Write them as for python: -- --epochs 3"),
        (["plain.py", "--epochs", "3"], "write it after --: allranks run plain.py -- --epochs"),
        (["image_classification", "--", "--epochs", "3"], "what stands after --: only a script takes this."),
        (["--command", "torchrun x.py", "--scale", "1x2"], "torchrun in the command starts the processes of a node."),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "plain.py").write_text("print(1)\n")
    (tmp_path / "broken.py").write_text("x = 1\nprint(\n")
    done = allranks("run", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / ".allranks/runs").exists()


def test_a_failure_shows_the_scripts_own_words_and_its_file(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import sys\nprint('starting')\ndef f():\n    raise KeyError('lost')\nf()\n")
    done = allranks("run", "fails.py", cwd=tmp_path)
    assert done.returncode == 1
    assert f'File "{tmp_path / "fails.py"}", line 4, in f' in done.stdout
    assert f'File "{tmp_path / "fails.py"}", line 4, in f' in done.stderr
    assert "ended with exit code 1" in done.stderr


def test_a_large_folder_is_refused_and_a_virtual_environment_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv/lib").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "venv/lib/big.py").touch()
    (tmp_path / "main.py").write_text("print(1)\n")
    assert run_json("main.py", "--dry-run", cwd=tmp_path)["steps"]["main"]["files"] == ["main.py"]
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(2 * 10**9)  # a hole: no room is taken
    done = allranks("run", "main.py", "--dry-run", cwd=tmp_path)
    assert (done.returncode, "most is in data.bin" in done.stderr) == (2, True), done.stderr


def test_what_is_neither_file_nor_folder_is_named_and_can_be_ignored(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    os.mkfifo(tmp_path / "pipe")
    done = allranks("run", "main.py", "--dry-run", cwd=tmp_path)
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)
    assert f"{tmp_path}/pipe is neither a file nor a folder" in done.stderr
    (tmp_path / ".amlignore").write_text("pipe\n")
    assert "main.py" in run_json("main.py", "--dry-run", cwd=tmp_path)["steps"]["main"]["files"]


def test_a_trainer_of_lightning_that_would_not_find_the_other_ranks_is_told(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text("import lightning as L\ntrainer = L.Trainer(devices=2, max_epochs=1)\n")
    said = "fit.py:2: Lightning learns the number of ranks from its arguments, not from the launch: without Trainer("
    for scale, lacking in {"2x2": "num_nodes=2", "1x2": "", "1x1": ""}.items():
        done = allranks("run", "fit.py", "--scale", scale, "--dry-run", cwd=tmp_path)
        assert (f"{said}{lacking})" in done.stderr) == bool(lacking), done.stderr
    (tmp_path / "fit.py").write_text("from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n")
    told = ["run", "fit.py", "--scale", "2x2", "--dry-run", "--", "fit", "--trainer.devices=2"]
    done = allranks(*told, cwd=tmp_path)
    assert "from the launch: without --trainer.num_nodes 2 ranks train alone." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            "from accelerate import Accelerator\nprint('ranks:', Accelerator().num_processes)\n",
            marks=pytest.mark.exhaustive,
        ),
        "from transformers import TrainingArguments\nprint('ranks:', TrainingArguments('out').world_size)\n",
    ],
    ids=["accelerate", "transformers"],
)
def test_ranks_of_accelerate_and_of_transformers_form_one_group_without_a_gpu(tmp_path: Path, script: str) -> None:
    pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(script)
    done = allranks("run", "train.py", "--scale", "1x2", cwd=tmp_path)
    assert done.stdout.count("ranks: 2") == 2, done.stdout

"""A script that asks for what is not here is told what helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.local.script_help import failure_help
from tests.local.support import allranks, pipeline, run_json, step

PYTHON = Path("/usr/bin/python3")


@pytest.mark.parametrize(
    ("line", "help_"),
    [
        ("AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'", "the script asks for a GPU"),
        ("AssertionError: Torch not compiled with CUDA enabled", "the script asks for a GPU"),
        ("RuntimeError: Found no NVIDIA driver on your system. Please check", "the script asks for a GPU"),
        ("[rank0]: ModuleNotFoundError: No module named 'torchvision'", "no torchvision: name it in the step's env"),
        ("ModuleNotFoundError: No module named 'horovod.torch'", "`allranks env build horovod`"),
        ("ModuleNotFoundError: No module named 'tf_keras'", "--environment train="),
        (
            "gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete",
            "another rank",
        ),
        ("[rank1]:[E1124] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", "another rank"),
        ("}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a", "Keras 2"),
    ],
)
def test_what_is_not_here(line: str, help_: str) -> None:
    assert help_ in failure_help(["Traceback", line], "train", {}, PYTHON)


def test_a_module_above_the_code_is_taken_along_and_not_installed(tmp_path: Path) -> None:
    code = tmp_path / "tools" / "benchmark"
    code.mkdir(parents=True)
    (code / "speed.py").write_text("import helpers\n")
    done = allranks("run", "speed.py", "--scale", "1x1", cwd=code)
    assert "no helpers: name it in" in done.stderr + done.stdout
    (tmp_path / "tools" / "helpers.py").write_text("")
    done = allranks("run", "speed.py", "--scale", "1x1", cwd=code)
    assert f"`--code {tmp_path / 'tools'}` takes that along" in done.stderr + done.stdout


def test_the_end_of_a_run_says_it(tmp_path: Path) -> None:
    command = "python -c 'import a_module_that_nobody_has.part'"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(command)}}}\n")
    failure = run_json(file, cwd=tmp_path)["steps"]["one"]["failure"]
    assert "the step's Python has no a_module_that_nobody_has" in str(failure)

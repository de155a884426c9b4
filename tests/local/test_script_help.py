"""A script that fails for want of what is not here is told what helps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks.local.keras_2 import keras_2_help
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


def test_a_module_at_the_top_of_the_code_is_not_installed_either(tmp_path: Path) -> None:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "__init__.py").touch()
    lines = ["ModuleNotFoundError: No module named 'shapes'"]
    assert "start the script by `python -m FOLDER.SCRIPT`" in failure_help(lines, "train", {}, PYTHON, tmp_path)


def test_the_end_of_a_run_says_it(tmp_path: Path) -> None:
    command = "python -c 'import a_module_that_nobody_has.part'"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(command)}}}\n")
    failure = run_json(file, cwd=tmp_path)["steps"]["one"]["failure"]
    assert "the step's Python has no a_module_that_nobody_has" in str(failure)


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: Argument(s) not recognized: {'lr': 0.01}",
        "ImportError: `keras.optimizers.legacy` is not supported in Keras 3.",
        "ValueError: The filepath provided must end in `.keras` (Keras model format). Received: filepath=a.h5",
        "ValueError: The filename must end in `.weights.h5`. Received: filepath=a",
        "AttributeError: module 'keras._tf_keras.keras.experimental' has no attribute 'x'",
        "ImportError: Keras cannot be imported. Check that it is installed.",
        "ModuleNotFoundError: No module named 'tf_keras'",
    ],
)
def test_what_such_scripts_say(line: str) -> None:
    assert "--environment train=tensorflow-2.16-cuda12" in keras_2_help(["Traceback", line], "train.3", {})


def test_the_failure_of_a_step_says_it(tmp_path: Path) -> None:
    failing = step("echo 'Argument(s) not recognized: lr' && exit 3")
    pipeline(tmp_path, f"type: pipeline\njobs: {{a: {failing}}}\n")
    run = run_json("pipeline.yaml", "--python", f"a={sys.executable}", cwd=tmp_path)
    message = run["steps"]["a"]["failure"]["message"]
    assert "exit code 3; this looks like a script for Keras 2" in message
    assert message.endswith("--environment a=tensorflow-2.16-cuda12")


PIPELINE = """
type: pipeline
jobs:
  log:
    type: command
    code: ./src
    command: python log.py ${{outputs.model}}
    outputs: {model: {type: uri_folder}}
    environment: azureml:whatever:1
"""


@pytest.mark.slow
def test_a_step_that_logs_to_an_absolute_path_says_why_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "log.py").write_text("import mlflow, sys\nmlflow.log_artifacts('.', sys.argv[1])\n")
    failure = run_json(pipeline(tmp_path, PIPELINE), cwd=tmp_path)["steps"]["log"]["failure"]
    assert "Azure ML's takes it: give log_model a name" in failure["message"]

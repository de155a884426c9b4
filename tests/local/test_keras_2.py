"""A step that fails because its script knows Keras 2 only says what helps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks.local.keras_2 import keras_2_help
from tests.local.support import pipeline, run_json, step


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

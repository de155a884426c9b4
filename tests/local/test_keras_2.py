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
        "AttributeError: module 'keras._tf_keras.keras.experimental' has no attribute 'x'",
    ],
)
def test_what_such_scripts_say(line: str) -> None:
    assert "TF_USE_LEGACY_KERAS=1" in keras_2_help(["Traceback", line])


def test_other_failures_are_left_alone() -> None:
    assert keras_2_help(["ModuleNotFoundError: No module named 'keras'", "ValueError: lr is negative"]) == ""


def test_the_failure_of_a_step_says_it(tmp_path: Path) -> None:
    failing = step("echo 'Argument(s) not recognized: lr' && exit 3")
    pipeline(tmp_path, f"type: pipeline\njobs: {{a: {failing}}}\n")
    run = run_json("pipeline.yaml", "--python", f"a={sys.executable}", cwd=tmp_path)
    assert "exit code 3; this looks like a script for Keras 2" in run["steps"]["a"]["failure"]["message"]


@pytest.mark.slow
def test_keras_really_says_so() -> None:
    keras = pytest.importorskip("keras")
    with pytest.raises(ValueError, match="not recognized") as caught:
        keras.optimizers.SGD(lr=0.1)
    assert keras_2_help([str(caught.value)])

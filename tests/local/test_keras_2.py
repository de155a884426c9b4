"""A step that fails because its script knows Keras 2 only says what helps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks.local.environments.known import KERAS_2
from allranks.local.environments.recipe import known_recipe
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


def test_where_tf_keras_is_keras_2_already_the_script_is_to_blame() -> None:
    said = keras_2_help(["ValueError: Argument(s) not recognized: lr"], "train", {"TF_USE_LEGACY_KERAS": "1"})
    assert said.endswith("`import keras` is not: write tf_keras")
    lacking = ["ImportError: Keras cannot be imported. Check that it is installed."]
    assert "--environment train=" in keras_2_help(lacking, "train", {"TF_USE_LEGACY_KERAS": "1"})


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'keras.engine'",
        "ModuleNotFoundError: No module named 'keras.preprocessing.text'",
        "ImportError: cannot import name 'np_utils' from 'keras.utils' (/x/keras/utils/__init__.py)",
    ],
)
def test_parts_of_the_package_keras_need_an_older_tensorflow(line: str) -> None:
    assert "tensorflow<2.16" in keras_2_help([line], "train", {})


def test_the_environment_that_is_named_has_keras_2() -> None:
    recipe = known_recipe(KERAS_2)
    assert recipe is not None
    assert recipe.variables["TF_USE_LEGACY_KERAS"] == "1"
    assert any(line.startswith("tf-keras==") for line in recipe.pip)


def test_other_failures_are_left_alone() -> None:
    lines = ["ModuleNotFoundError: No module named 'keras'", "ValueError: lr is negative"]
    assert keras_2_help(lines, "train", {}) == ""


def test_the_failure_of_a_step_says_it(tmp_path: Path) -> None:
    failing = step("echo 'Argument(s) not recognized: lr' && exit 3")
    pipeline(tmp_path, f"type: pipeline\njobs: {{a: {failing}}}\n")
    run = run_json("pipeline.yaml", "--python", f"a={sys.executable}", cwd=tmp_path)
    message = run["steps"]["a"]["failure"]["message"]
    assert "exit code 3; this looks like a script for Keras 2" in message
    assert message.endswith("--environment a=tensorflow-2.16-cuda12")


@pytest.mark.slow
def test_keras_really_says_so() -> None:
    keras = pytest.importorskip("keras")
    with pytest.raises(ValueError, match="not recognized") as caught:
        keras.optimizers.SGD(lr=0.1)
    assert keras_2_help([str(caught.value)], "train", {})

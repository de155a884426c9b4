"""The hint for a script that logs an MLflow model under an absolute path."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.local.artifact_paths import artifact_path_help
from tests.local.support import pipeline, run_json

SCRIPT = """
import sys
import mlflow.sklearn
from sklearn.linear_model import LinearRegression

mlflow.sklearn.log_model(LinearRegression(), sys.argv[1])
"""


@pytest.mark.slow
def test_a_step_that_logs_to_a_path_says_why_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "log.py").write_text(SCRIPT)
    file = pipeline(
        tmp_path,
        """
type: pipeline
jobs:
  log:
    type: command
    code: ./src
    command: python log.py ${{outputs.model}}
    outputs: {model: {type: mlflow_model}}
    environment: azureml:whatever:1
""",
    )
    failure = run_json(file, cwd=tmp_path)["steps"]["log"]["failure"]
    assert "MLflow refuses a path as a model's name, on Azure ML too" in failure["message"]
    assert "save_model the path of an output" in failure["message"]


def test_what_mlflow_2_says_is_known_and_other_names_are_not_commented() -> None:
    """The line is that of MLflow 2.9.2 with its own store."""
    line = "mlflow.exceptions.MlflowException: Invalid artifact path: '/mnt/out/model'. Names may be treated as files"
    assert "Azure ML's takes it" in artifact_path_help(["Traceback", line])
    assert artifact_path_help(["Invalid artifact path: '../up'", "Invalid model name ('a.b') provided"]) == ""

"""The hint for a script that logs to MLflow under an absolute path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.support import pipeline, run_json

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

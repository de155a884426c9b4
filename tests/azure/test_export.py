"""`allranks export`: the files that it writes; test_export_fields.py holds them against the Python pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from azure.ai.ml import load_job

from allranks.cli.main import main

SAMPLES = Path(__file__).parent / "samples" / "pipelines.py"


@pytest.mark.slow
def test_the_command_writes_the_files_and_names_the_next_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "whole.yaml"
    assert main(["export", f"{SAMPLES}:everything", "-o", str(output)]) == 0
    assert f"az ml job create --file {output}" in capsys.readouterr().out
    assert load_job(output).jobs.keys() == {"first", "second", "third"}
    assert main(["export", f"{SAMPLES}:everything", "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [str(output), str(output.with_name("whole.inner.yaml"))]


@pytest.mark.slow
def test_what_is_no_python_pipeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "image_classification"]) == 2
    assert "It is YAML already" in capsys.readouterr().err
    assert main(["export", f"{SAMPLES}:small", "-o", "/proc/no/such.yaml"]) == 2
    assert "Cannot write /proc/no" in capsys.readouterr().err

"""Steps that decide, and steps that only Azure runs, on their way to Azure: taken as they are, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.in_process import allranks
from tests.local import support
from tests.local.test_if_else import branching
from tests.spec.mutations import write_files

PREVIEW = "AZURE_ML_CLI_PRIVATE_FEATURES_ENABLED"
PYTHON = """
from pathlib import Path
from azure.ai.ml import load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.dsl._condition import condition

check, join = (load_component(Path(__file__).parent / f"{name}.yaml") for name in ("check", "join"))

@pipeline(default_compute="serverless")
def choosing(n: int = 3):
    first = check(n=n)
    big, small = join(), join()
    condition(first.outputs.large, true_block=big, false_block=[small])
"""


@pytest.mark.slow
def test_a_step_that_decides_is_sent_where_the_preview_is_switched_on(tmp_path: Path) -> None:
    file = branching(tmp_path)
    of_a_job = file.read_text().replace("{type: boolean, default: false}", "false")
    file.write_text(of_a_job + "settings: {default_compute: azureml:cpu}\n")
    refused = allranks("submit", file, "--dry-run", cwd=tmp_path, **{PREVIEW: ""})
    assert refused.returncode == 2
    assert "step choose: if_else is a private preview" in refused.stderr
    assert f"{PREVIEW}=true" in refused.stderr
    # The SDK asks when it is imported, so a process of its own.
    taken = support.allranks("submit", file, "--dry-run", cwd=tmp_path, **{PREVIEW: "true"})
    assert taken.returncode == 0, taken.stderr
    assert "choose" in taken.stdout


def test_a_python_pipeline_that_decides_runs(tmp_path: Path) -> None:
    branching(tmp_path)
    (tmp_path / "choosing.py").write_text(PYTHON)
    done = allranks("run", "choosing.py:choosing", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "small: not taken" in done.stdout


@pytest.mark.parametrize("kind", ["spark", "data_transfer"])
@pytest.mark.parametrize("command", [("submit", "--dry-run"), ("run",)], ids=["submit", "run"])
def test_steps_that_allranks_does_not_know_are_refused_by_name(tmp_path: Path, kind: str, command: Any) -> None:
    (tmp_path / "job.yaml").write_text(f"type: pipeline\njobs: {{join: {{type: {kind}, component: ./join.yaml}}}}\n")
    refused = allranks(*command, "job.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert f"step 'join' is of type '{kind}', which allranks neither runs nor checks" in refused.stderr
    assert "az ml job create" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_timeout_for_all_passes_over_steps_that_have_none(tmp_path: Path) -> None:
    write_files(tmp_path)
    taken = allranks("submit", "batches.yaml", "--dry-run", "--timeout", "2h", cwd=tmp_path)
    assert taken.returncode == 0, taken.stderr
    refused = allranks("submit", "batches.yaml", "--dry-run", "--timeout", "named=2h", cwd=tmp_path)
    assert refused.returncode == 2
    assert "timeout of a parallel step" in refused.stderr

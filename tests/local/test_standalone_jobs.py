"""Command jobs and sweep jobs that are no part of a pipeline run as Azure ML runs them, named or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import cli  # noqa: F401 a fixture
from tests.local.support import pipeline

SCHEMA = "$schema: https://azuremlschemas.azureedge.net/latest/{}Job.schema.json\n"
COMMAND = (
    SCHEMA.format("command")
    + """\
command: echo '${{inputs.word}}' > ${{outputs.out}}/word
inputs: {word: hello}
outputs: {out: {type: uri_folder}}
environment: azureml:x:1
compute: azureml:cpu
"""
)
SWEEP = (
    SCHEMA.format("sweep")
    + """\
type: sweep
trial:
  command: >-
    mkdir -p outputs && echo '{"step": 1, "metrics": {"m": ${{search_space.x}}}}' > outputs/metrics.jsonl &&
    echo '${{inputs.word}}' $GREETED ${{search_space.x}} > ${{outputs.out}}/word
  environment: azureml:x:1
  environment_variables: {GREETED: you}
inputs: {word: hello}
outputs: {out: {type: uri_folder}}
compute: azureml:cpu
sampling_algorithm: grid
search_space: {x: {type: choice, values: [3, 1, 2]}}
objective: {goal: minimize, primary_metric: m}
limits: {max_total_trials: 3, max_concurrent_trials: 1}
"""
)


@pytest.mark.parametrize(
    ("more", "file", "name"),
    [
        ("", "my-job 2.yaml", "my_job_2"),
        ("display_name: Greet, the first!\n", "x.yaml", "greet_the_first"),
        ("name: Brave-Rabbit_1\ndisplay_name: other\n", "x.yaml", "brave_rabbit_1"),
        ("", "2.yaml", "job_2"),
    ],
)
def test_a_command_job_needs_no_name(
    cli: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    file: str,
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline(tmp_path, COMMAND + more, file)
    assert cli("lint", file).out == "1 document checked, nothing wrong\n"
    done = cli("run", file, "word=there", "--json")
    assert (done.code, list(done.json["steps"])) == (0, [name]), done.out
    assert Path(done.json["outputs"]["out"], "word").read_text() == "there\n"


def test_a_sweep_job_runs_its_trials(
    cli: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline(tmp_path, SWEEP, "tune.yaml")
    assert cli("lint", "tune.yaml").out == "1 document checked, nothing wrong\n"
    done = cli("run", "tune.yaml", "word=there", "--json")
    assert (done.code, done.json["steps"]["tune"]["best_trial"]) == (0, 1), done.out
    assert Path(done.json["outputs"]["out"], "word").read_text() == "there you 1\n"
    pipeline(
        tmp_path, SWEEP.replace("max_total_trials: 3", "max_total_trials: none").replace("code:", "cod:"), "tune.yaml"
    )
    wrong = cli("lint", "tune.yaml")
    assert wrong.code == 2
    assert wrong.out.startswith("tune.yaml:15: jobs.tune.limits"), wrong.out


@pytest.mark.parametrize("text", [COMMAND, SWEEP])
def test_submit_says_how_to_send_one(
    cli: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline(tmp_path, text, "x.yaml")
    refused = cli("submit", "x.yaml", "--dry-run", "--compute", "cpu")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("hint: Send it with: az ml job create --file x.yaml.\n")

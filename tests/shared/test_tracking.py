"""Metrics: always a file, MLflow where there is one, and never a training that suffers from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared import tracking
from shared.distributed import init
from shared.tracking import Tracker
from tests.helpers import run_python

LOG = """
import sys, types
from shared.tracking import Tracker
world = types.SimpleNamespace(is_main=sys.argv[1] == "0")
with Tracker(world, total_steps=20) as tracker:
    tracker.params({"epochs": 3, "api_key": "hidden"})
    for step in range(1, 21):
        tracker.log({"loss": 1 / step, "wrong": float("nan")}, step)
    tracker.artifacts("report")
print("mlflow" in sys.modules)
"""


def log(folder: Path, rank: int = 0, **variables: str) -> str:
    unset = {name: None for name in os.environ if "MLFLOW" in name}
    return run_python(LOG, rank, cwd=folder, env={**unset, **variables}).stdout


def test_lines_are_appended_without_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert log(tmp_path) == "False\n"
    world = SimpleNamespace(is_main=True)
    with Tracker(world, folder=tmp_path / "outputs", clock=lambda: 1.5e9) as tracker:  # type: ignore[arg-type]
        tracker.log({"loss": 1.0}, 3)
    lines = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, 21), 3]
    assert lines[3]["metrics"] == {"loss": 0.25}
    assert {line["total"] for line in lines[:-1]} == {20}
    assert lines[-1] == {"time": 1.5e9, "step": 3, "total": None, "metrics": {"loss": 1.0}}


def test_lines_of_steps_that_are_done_again_are_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    path = tmp_path / "outputs" / "metrics.jsonl"
    with init() as world:
        with Tracker(world) as tracker:
            assert tracker.take_back(lambda *_: False) == 0
            for step in range(1, 6):
                tracker.log({"loss": 1 / step}, step)
        path.write_text(path.read_text() + '{"time": 1, "step": 6, "met')  # killed in the middle of a line
        with Tracker(world) as tracker:
            assert tracker.take_back(lambda step, metrics: step <= 3 and "loss" in metrics) == 5
            tracker.log({"loss": 0.0}, 4)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_metrics_that_cannot_be_taken_back_stay_and_end_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "outputs" / "metrics.jsonl").mkdir(parents=True)  # as a mount that cannot read it
    with init() as world, Tracker(world) as tracker:
        tracker.take_back(lambda *_: False)
    assert "warning: metrics of steps that are done again stay in outputs/metrics.jsonl" in capsys.readouterr().err


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    assert log(tmp_path, rank=1, MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db") == "False\n"
    assert list(tmp_path.iterdir()) == []


def runs(uri: str, experiment: str) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    return list(client.search_runs([found.experiment_id]))


SIDE_BY_SIDE = """
import os, sys
import mlflow.store.tracking.sqlalchemy_store, mlflow.tracking  # once, which takes seconds
steps = sys.argv[1:]
for step in steps:
    if os.fork() == 0:
        os.chdir(step)
        os.environ["AZUREML_RUN_ID"] = "calm_owl_" + step
        sys.argv[1:] = ["0"]
        break
else:
    raise SystemExit(any(os.wait()[1] for _ in steps))
"""


@pytest.mark.slow
def test_steps_that_start_at_once_share_a_new_database(tmp_path: Path) -> None:
    steps = ("train_a", "train_b")
    for step in steps:
        (tmp_path / step / "report").mkdir(parents=True)
        (tmp_path / step / "report" / "index.html").touch()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    azure = {"AZUREML_ROOT_RUN_ID": "calm_owl", "AZUREML_ARM_PROJECT_NAME": "digits", "MLFLOW_TRACKING_URI": uri}
    assert "MLflow is not used" not in run_python(SIDE_BY_SIDE + LOG, *steps, cwd=tmp_path, env=azure).stderr
    found = {run.info.run_name: run for run in runs(uri, "digits")}
    assert sorted(found) == ["calm_owl", *steps]  # one parent, and a child for each step
    run = found["train_a"]
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"loss": 0.05}
    assert run.data.params == {"epochs": "3"}
    assert run.data.tags["allranks.run"] == "calm_owl"
    assert run.data.tags["mlflow.parentRunId"] == found["calm_owl"].info.run_id
    assert (tmp_path / "mlflow" / run.info.run_id / "artifacts" / "report" / "index.html").is_file()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Track in this process, in a folder with a report; the address of the database there."""
    monkeypatch.chdir(tmp_path)
    Path("report").mkdir()
    Path("report/index.html").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "sesame-token")
    monkeypatch.setenv("AZUREML_ARM_PROJECT_NAME", "mine")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return uri


def track(params: dict[str, object], steps: int) -> None:
    with Tracker(SimpleNamespace(is_main=True)) as tracker:  # type: ignore[arg-type]
        tracker.params(params)
        tracker.artifacts("report")
        for step in range(steps):
            tracker.log({"loss": 1.0}, step)


def test_the_run_that_azure_made_is_used_and_left_open(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=here)
    made = client.create_run(client.create_experiment("on azure"))
    monkeypatch.setenv("MLFLOW_RUN_ID", made.info.run_id)
    track({}, 3)
    (run,) = runs(here, "on azure")
    assert run.info.status == "RUNNING"
    assert run.data.metrics == {"loss": 1.0}


def test_a_server_that_is_away_costs_a_line_without_its_password(
    here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del here
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:opensesame@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    track({}, 20)
    err = capsys.readouterr().err
    assert len([line for line in err.splitlines() if line.startswith("MLflow is not used")]) == 1
    assert "opensesame" not in err
    assert "sesame-token" not in err
    assert len(Path("outputs/metrics.jsonl").read_text().splitlines()) == 20


def test_more_than_one_request_takes_no_credentials_in_values_and_files_that_cannot_be_logged(
    here: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mlflow").touch()  # where MLflow would make a folder for files
    secret = {"data": "https://me:opensesame@host/data?sig=sesame-signature", "note": "sesame-token in it"}
    track({**secret, **{f"setting_{number}": number for number in range(150)}}, 1200)
    err = capsys.readouterr().err
    assert "MLflow is not used" not in err
    assert "MLflow has not taken the files of report" in err
    (run,) = runs(here, "mine")
    assert len(run.data.params) == 152
    assert run.data.params["data"] == "https://host/data"
    assert run.data.params["note"] == "*** in it"
    assert run.data.metrics == {"loss": 1.0}


@pytest.mark.parametrize(
    ("root", "run", "name"),
    [
        ("calm_owl", "calm_owl_train", "train"),
        ("calm_owl", "calm_owl/outer.train", "outer.train"),
        ("", "20261101/train", "train"),
        ("calm_owl", "calm_owl", "calm_owl"),
        ("", "", None),
    ],
)
def test_the_run_is_named_after_the_step(
    root: str, run: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZUREML_ROOT_RUN_ID", root)
    monkeypatch.setenv("AZUREML_RUN_ID", run)
    assert tracking.run_name() == name

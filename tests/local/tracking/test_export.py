"""Tracked runs as MLflow itself reads them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from allranks.errors import CannotRunHereError
from allranks.local.folders import RunsHome
from allranks.local.tracking.export import export_to_mlflow
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.points import log_batch
from allranks.local.tracking.reading import read_tracked_run
from allranks.local.tracking.store import TrackingStore


@pytest.mark.slow
def test_mlflow_reads_what_was_exported(tmp_path):
    from mlflow.tracking import MlflowClient

    home = RunsHome(tmp_path / "home")
    home.prepare()
    jobs = JobRuns(home, "r", "digits", "p")
    jobs.begin()
    run_id = jobs.begin_step("train")
    points = [{"key": "m", "value": value, "step": step} for step, value in enumerate([1, "NaN", 3])]
    log_batch(TrackingStore(home), {"run_id": run_id, "metrics": points, "params": [{"key": "lr", "value": "1"}]})
    run = read_tracked_run(home, run_id)
    run.artifacts.mkdir(parents=True)
    (run.artifacts / "note.txt").write_text("x")
    jobs.end("failed", "train")
    (tmp_path / "ui.db").write_text("of another time")
    assert export_to_mlflow(home, Path(sys.executable), tmp_path / "ui.db") == 2
    client = MlflowClient(f"sqlite:///{tmp_path}/ui.db")
    found = {
        one.info.run_name: one for one in client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    }
    assert found["train"].info.status == "FAILED"
    assert found["train"].data.params == {"lr": "1"}
    assert found["train"].data.tags["mlflow.parentRunId"] == found["p"].info.run_id
    assert [point.value for point in client.get_metric_history(found["train"].info.run_id, "m")][::2] == [1, 3]
    assert [file.path for file in client.list_artifacts(found["train"].info.run_id)] == ["note.txt"]


def test_an_interpreter_without_mlflow_is_named(tmp_path):
    home = RunsHome(tmp_path / "home")
    home.prepare()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o700)
    with pytest.raises(CannotRunHereError, match="No module named 'mlflow'"):
        export_to_mlflow(home, bare, tmp_path / "ui.db")
    assert not (tmp_path / "ui.db").exists()

"""Runs that a script makes itself with MLflow: those of Azure ML's rules, shown below their step and never as its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from allranks.local.tracking.reading import read_tracked_run
from tests.local.support import allranks, run_json
from tests.local.test_logged import CLIENT, written

CHILDREN = f"""{CLIENT}
experiment = os.environ["MLFLOW_EXPERIMENT_ID"]
def made(name, parent=None, end="FINISHED", **metrics):
    tags = [{{"key": "mlflow.parentRunId", "value": parent}}] if parent else []
    run = post("create", experiment_id=experiment, run_name=name, tags=tags, start_time=1000)["run"]["info"]["run_id"]
    for key, value in metrics.items():
        post("log-metric", run_id=run, key=key, value=value)
    if end:
        post("update", run_id=run, status=end, end_time=3500)
    return run
own = os.environ["MLFLOW_RUN_ID"]
post("update", run_name="another name", status="RUNNING")  # start_run(run_name=...)
post("log-metric", key="loss", value=0.5)
outer = made("outer\x1b[1m <fold>", own, loss=7, score="NaN")
post("log-parameter", run_id=made("inner", outer, score=2), key="api_key", value="abc")
made("second", end=None, loss=9)
"""


def test_they_are_shown_below_their_step_and_are_no_part_of_its_metrics(tmp_path: Path) -> None:
    written(tmp_path, CHILDREN)
    done = allranks("run", "pipeline.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"train  outer \[1m <fold> +loss 7\n  train    inner +score 2\n", done.stdout)
    assert re.search(r"train: succeeded, .*, loss 0\.5\n", done.stdout)
    shown = allranks("runs", "show", "latest", cwd=tmp_path).stdout
    assert re.search(r"  train +succeeded .*loss=0.5\n    outer .* 2\.5 s +loss=7 score=NaN\n      inner ", shown)
    assert re.search(r"\n    second +succeeded .*loss=9\n", shown), "what was left open ends with its step"
    page = next(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
    assert re.search(
        r'padding-left: 18px">inner</td><td class="succeeded">succeeded</td><td class="brief">2.5 s</td><td></td><td>2<',
        page,
    )
    assert "&lt;fold&gt;" in page
    train = json.loads(allranks("runs", "show", "latest", "--json", cwd=tmp_path).stdout)["steps"]["train"]
    assert train["metrics"] == {"loss": 0.5}
    outer, inner, second = train["child_runs"]
    assert (outer["parent"], inner["parent"], second["parent"]) == (train["mlflow_run_id"], outer["run_id"], None)
    assert (outer["metrics"], inner["params"]) == ({"loss": 7, "score": "NaN"}, {"api_key": "***"})
    reused = run_json("pipeline.yaml", cwd=tmp_path)["steps"]["train"]
    assert reused["reused"]
    assert reused["child_runs"] == train["child_runs"]
    home = RunsHome(tmp_path / ".allranks")
    runs = [read_tracked_run(home, one["run_id"]) for one in train["child_runs"]]
    pipelines = train["mlflow_run_id"].rpartition("-")[0]
    assert [run and run.tags["mlflow.rootRunId"] for run in runs] == [pipelines, pipelines, second["run_id"]]
    assert {run and run.experiment for run in runs} == {tmp_path.name}
    own = read_tracked_run(home, train["mlflow_run_id"])
    assert own is not None
    assert own.name == "train", "azureml-mlflow leaves out every change of a job's own run"


def test_a_script_that_is_killed_leaves_no_run_open(tmp_path: Path) -> None:
    written(tmp_path, f"{CHILDREN}import signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    train = run_json("pipeline.yaml", cwd=tmp_path)["steps"]["train"]
    assert [child["status"] for child in train["child_runs"]] == ["succeeded", "succeeded", "failed"]


MLFLOW = """
import os, subprocess, sys
import mlflow
if len(sys.argv) > 1:  # a process that a script starts has lost MLFLOW_RUN_ID, as on Azure ML
    mlflow.log_metric("apart", 3)
    sys.exit()
with mlflow.start_run(run_name="other", nested=True) as own:
    assert own.info.run_id == os.environ["AZUREML_RUN_ID"]
    mlflow.log_metric("loss", 0.5)
    with mlflow.start_run(run_name="fold", nested=True):
        mlflow.log_metric("loss", 7)
with mlflow.start_run(run_name="second"):
    mlflow.log_metric("loss", 9)
found = mlflow.search_runs(filter_string=f"tags.mlflow.parentRunId = '{own.info.run_id}'")
assert list(found["metrics.loss"]) == [7], found
subprocess.run([sys.executable, __file__, "apart"], check=True)
"""


@pytest.mark.slow
def test_mlflow_makes_them_as_on_azure(tmp_path: Path) -> None:
    written(tmp_path, MLFLOW)
    result = run_json("pipeline.yaml", cwd=tmp_path)
    assert result["exit"] == 0, result
    train = result["steps"]["train"]
    assert train["metrics"] == {"loss": 0.5}
    fold, second, apart = train["child_runs"]
    assert [(one["name"], one["parent"], one["metrics"]) for one in (fold, second)] == [
        ("fold", train["mlflow_run_id"], {"loss": 7}),
        ("second", None, {"loss": 9}),
    ]
    assert (apart["parent"], apart["metrics"]) == (None, {"apart": 3})

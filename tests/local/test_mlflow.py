"""What scripts log with MLflow alone: one run for each step and trial, nothing is lost, and files lie where they stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks.local.folders import RunsHome
from allranks.local.tracking.reading import TrackedRun, TrackingReader, read_tracked_run
from tests.local.support import allranks, pipeline, run_json

# A client without MLflow, which takes seconds to import: the same requests over one connection.
CLIENT = """
import http.client, json, os
from urllib.parse import urlsplit
server = http.client.HTTPConnection(urlsplit(os.environ["MLFLOW_TRACKING_URI"]).netloc)
def call(route, **document):
    head = {"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"], "Content-Type": "application/json"}
    server.request("POST", "/api/2.0/mlflow/" + route, json.dumps({"run_id": os.environ["MLFLOW_RUN_ID"], **document}), head)
    answer = server.getresponse()
    assert answer.status == 200, answer.read()
    return json.loads(answer.read())
"""
LOG = """
import os, sys
from client import call
rank = os.environ.get("RANK", "0")
for step in range(50):
    call("runs/log-metric", key="m", value=float(sys.argv[1]) + 1 / (1 + step), step=step)
    call("runs/log-metric", key="of_rank_" + rank, value=step, step=step)
"""
JOBS = """
type: pipeline
experiment_name: digits
jobs:
  tune:
    type: sweep
    trial: {type: command, code: ./code, command: 'python train.py ${{inputs.x}}', environment: 'azureml:any:1', inputs: {x: {type: number}}}
    sampling_algorithm: grid
    search_space: {x: {type: choice, values: [3, 1, 2]}}
    objective: {goal: minimize, primary_metric: m}
    limits: {max_total_trials: 3, max_concurrent_trials: 2}
  ranks:
    {type: command, code: ./code, command: python train.py 10, environment: 'azureml:any:1', distribution: {type: pytorch, process_count_per_instance: 8}}
"""


def write(folder: Path, jobs: str = JOBS, script: str = LOG) -> Path:
    (folder / "code").mkdir()
    (folder / "code/client.py").write_text(CLIENT)
    (folder / "code/train.py").write_text(script)
    return pipeline(folder, jobs)


def tracked(folder: Path, step: dict[str, object]) -> TrackedRun:
    found = read_tracked_run(RunsHome(folder / ".allranks"), str(step["mlflow_run_id"]))
    assert found is not None
    return found


@pytest.mark.slow
def test_ranks_and_trials_that_log_at_once_lose_nothing_and_a_reused_step_shows_the_same(tmp_path):
    result = run_json(write(tmp_path), cwd=tmp_path)
    assert result["exit"] == 0, result
    tune = result["steps"]["tune"]
    assert [trial["metric"] for trial in tune["trials"]] == [3.02, 1.02, 2.02]
    assert tune["best_trial"] == 1
    ranks = tracked(tmp_path, result["steps"]["ranks"])
    assert (ranks.name, ranks.experiment, ranks.status) == ("ranks", "digits", "FINISHED")
    assert len(ranks.metrics["m"]) == 400
    assert [len(ranks.metrics[f"of_rank_{rank}"]) for rank in range(8)] == [50] * 8
    home = RunsHome(tmp_path / ".allranks")
    with TrackingReader(home) as reader:
        root = result["run_id"]
        assert sorted(reader.children(root)) == [f"{root}-ranks", f"{root}-tune"]
        assert reader.children(f"{root}-tune") == [f"{root}-tune-{number}" for number in range(3)]
        assert reader.run(root).status == "FINISHED"
    again = run_json(tmp_path / "pipeline.yaml", cwd=tmp_path)
    assert again["steps"]["ranks"]["reused"]
    assert tracked(tmp_path, again["steps"]["ranks"]) == ranks
    state = json.loads((Path(again["run_dir"]) / "steps/ranks/step.json").read_text())
    assert state["mlflow_run_id"] == f"{result['run_id']}-ranks"


RETRIED = """
import os, sys
from client import call
attempt = os.environ["AZUREML_CR_COMPUTE_CONTEXT"]
assert os.environ["MLFLOW_RUN_ID"] == os.environ["AZUREML_RUN_ID"]
assert os.environ["MLFLOW_EXPERIMENT_ID"] == os.environ["AZUREML_EXPERIMENT_ID"]
call("runs/log-metric", key="m", value=1 if '"run_attempt_count": 1' in attempt else 2)
call("runs/update", status="FINISHED", end_time=1)  # as mlflow.end_run() in each rank
sys.exit('"run_attempt_count": 1' in attempt)
"""
ONE = "type: pipeline\njobs:\n  train: {type: command, code: ./code, command: python train.py, environment: 'azureml:any:1'}\n"


def test_another_attempt_continues_the_run_and_a_failed_step_has_failed(tmp_path):
    file = write(tmp_path, ONE, RETRIED)
    result = run_json(file, "--retries", "1", cwd=tmp_path)
    run = tracked(tmp_path, result["steps"]["train"])
    assert [point.value for point in run.metrics["m"]] == [1, 2]
    assert (run.status, run.experiment) == ("FINISHED", tmp_path.name)
    failed = run_json(file, "--no-cache", cwd=tmp_path)
    assert failed["exit"] == 1
    assert tracked(tmp_path, failed["steps"]["train"]).status == "FAILED"


SILENT = "type: pipeline\njobs:\n  train: {type: command, command: 'true', environment: 'azureml:any:1'}\n"


def test_a_run_that_logs_nothing_starts_no_server(tmp_path):
    result = run_json(pipeline(tmp_path, SILENT), cwd=tmp_path)
    assert result["exit"] == 0
    assert not (Path(result["run_dir"]) / "tracking.txt").exists()
    assert tracked(tmp_path, result["steps"]["train"]).metrics == {}


MLFLOW = """
import os, sys, mlflow
mlflow.log_metric("m", int(os.environ["RANK"]))
mlflow.log_text("by " + os.environ["RANK"], f"note{os.environ['RANK']}.txt")
if os.environ["RANK"] == "0":
    mlflow.log_text("the model", "kept/model/MLmodel")
    client = mlflow.MlflowClient()
    if not client.search_registered_models():
        client.create_registered_model("digits")
        client.create_model_version("digits", mlflow.get_artifact_uri("kept/model"), mlflow.active_run().info.run_id)
"""


@pytest.mark.slow
def test_plain_mlflow_in_two_ranks_is_one_run_whose_files_go_with_it_but_for_a_registered_model(tmp_path):
    jobs = ONE.replace(
        "python train.py,", "python train.py, distribution: {type: pytorch, process_count_per_instance: 2},"
    )
    result = run_json(write(tmp_path, jobs, MLFLOW), cwd=tmp_path)
    assert result["exit"] == 0, result
    other = run_json(tmp_path / "pipeline.yaml", "--no-cache", "--scale", "train=1x1", cwd=tmp_path)
    run = tracked(tmp_path, result["steps"]["train"])
    assert sorted(point.value for point in run.metrics["m"]) == [0, 1]
    assert run.artifacts.is_relative_to(tmp_path / ".allranks/mlflow"), "files of one run in the folder of another"
    assert (run.artifacts / "note0.txt").is_file()
    assert allranks("runs", "remove", result["run_id"], cwd=tmp_path).returncode == 0
    assert [file.read_text() for file in run.artifacts.rglob("*") if file.is_file()] == ["the model"]
    assert tracked(tmp_path, other["steps"]["train"]).metrics.keys() == {"m"}
    assert (tracked(tmp_path, other["steps"]["train"]).artifacts / "note0.txt").read_text() == "by 0"

"""What views read: whole runs, and what is new since the last look."""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from pathlib import Path

import pytest

from allranks.errors import StorageError
from allranks.local.folders import RunsHome
from allranks.local.tracking.database import transaction
from allranks.local.tracking.jobs import JobRuns, job_run_id
from allranks.local.tracking.points import log_batch, log_metric
from allranks.local.tracking.reading import MetricPoint, TrackingReader, read_tracked_run
from allranks.local.tracking.store import TrackingStore


@pytest.fixture
def home(tmp_path: Path) -> RunsHome:
    home = RunsHome(tmp_path / "home")
    home.prepare()
    return home


def begun(home: RunsHome) -> JobRuns:
    jobs = JobRuns(home, "20261122-1", "digits", "tune digits")
    jobs.begin()
    return jobs


def test_a_step_has_one_run_below_that_of_the_pipeline(home):
    jobs = begun(home)
    assert jobs.begin_step("outer.train") == "20261122-1-outer-train"
    jobs.begin_step("tune")
    trial = jobs.begin_step("tune.0", parent="tune", tags={"azureml.sweep": "yes"})
    store = TrackingStore(home)
    points = [{"key": "loss", "value": 1 / step, "step": step, "timestamp": 1000 * step} for step in (1, 2)]
    log_batch(store, {"run_id": trial, "metrics": points, "params": [{"key": "lr", "value": "0.1"}]})
    log_metric(store, {"run_id": trial, "key": "odd", "value": "NaN", "timestamp": 5})
    jobs.begin_step("tune.0", parent="tune")  # another attempt
    jobs.end("failed", "tune.0")
    run = read_tracked_run(home, trial)
    assert run is not None
    assert (run.name, run.experiment, run.status) == ("tune.0", "digits", "FAILED")
    assert run.metrics["loss"] == [MetricPoint(1, 1, 1), MetricPoint(2, 2, 0.5)]
    assert math.isnan(run.metrics["odd"][0].value)
    assert run.params == {"lr": "0.1"}
    assert run.tags["mlflow.parentRunId"] == "20261122-1-tune"
    assert run.tags["azureml.sweep"] == "yes"
    assert run.artifacts == home.mlflow_files / jobs.experiment_id / trial / "artifacts"
    with TrackingReader(home) as reader:
        assert reader.children("20261122-1") == ["20261122-1-outer-train", "20261122-1-tune"]
        assert reader.latest(trial)["loss"] == 0.5


def test_a_reader_sees_what_is_new_and_a_folder_without_runs_has_none(home):
    with TrackingReader(home) as reader:
        assert reader.run("x") is None
        assert reader.new_metrics(["x"]).points == {}
        jobs = begun(home)
        one, other = jobs.begin_step("one"), jobs.begin_step("other")
        store = TrackingStore(home)
        log_metric(store, {"run_id": one, "key": "m", "value": 1})
        first = reader.new_metrics([one])
        assert [point.value for point in first.points[one]["m"]] == [1]
        assert first.sequence == reader.sequence()
        log_metric(store, {"run_id": other, "key": "m", "value": 2})
        log_metric(store, {"run_id": one, "key": "m", "value": 3, "step": 1})
        second = reader.new_metrics([one], first.sequence)
        assert {name: [point.value for point in points] for name, points in second.points[one].items()} == {"m": [3]}
        assert reader.new_metrics([one], second.sequence).points == {}


def test_writers_of_two_engines_lose_nothing(home):
    run = begun(home).begin_step("train")

    def write(rank: int) -> None:
        store = TrackingStore(home)
        for step in range(50):
            with transaction(store.connection):
                log_metric(store, {"run_id": run, "key": f"m{rank}", "value": step, "step": step})
        store.close()

    threads = [threading.Thread(target=write, args=[rank]) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_tracked_run(home, run)
    assert found is not None
    assert [len(points) for points in found.metrics.values()] == [50] * 4


@pytest.mark.parametrize("version", [1, 99])
def test_a_database_of_another_version_is_left_alone(home, version):
    begun(home).close()
    connection = sqlite3.connect(home.tracking)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(StorageError, match="another version"):
        begun(home)
    assert read_tracked_run(home, "20261122-1") is None


def test_runs_of_an_engine_that_was_killed_end_with_the_next_begin(home):
    begun(home).begin_step("train")
    alive = JobRuns(home, "20261122-2", "digits", "p")
    home.run("20261122-2").path.mkdir(parents=True)
    lock = home.run("20261122-2").lock()
    alive.begin()
    JobRuns(home, "20261122-3", "digits", "p").begin()
    os.close(lock)
    with TrackingReader(home) as reader:
        found = {run_id: reader.run(run_id).status for run_id in reader.run_ids()}
    assert found == {
        "20261122-1": "KILLED",
        "20261122-1-train": "KILLED",
        "20261122-2": "RUNNING",
        "20261122-3": "RUNNING",
    }


def test_no_two_steps_have_the_same_run() -> None:
    """A hyphen is possible in a step's name, and was what a nested step's name has in place of its dot."""
    steps = ["train-eval", "train.eval", "train-0", "train.0", "train_0"]
    assert len({job_run_id("20261122-1", step) for step in steps}) == len(steps)


def test_what_steps_had_for_themselves_goes_when_the_next_run_finds_that_their_engine_was_killed(
    home: RunsHome,
) -> None:
    """Copies of inputs, up to 1 GiB each, and what a step had installed stayed until the run was removed."""
    nodes = home.run("20261122-1").step("train").path / "nodes"
    for place in ("inputs/data", "0/python/bin", "0/work"):
        (nodes / place).mkdir(parents=True)
    jobs = begun(home)
    jobs.begin_step("train")
    jobs.close()  # and it never says how it has ended
    JobRuns(home, "20261122-2", "digits", "tune digits").begin()
    assert {path.relative_to(nodes).as_posix() for path in nodes.rglob("*")} == {"0", "0/work"}

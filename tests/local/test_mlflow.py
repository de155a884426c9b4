"""What scripts log with MLflow alone: nothing is lost when they start at once, and files lie where they stay."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from urllib.parse import urlparse

import pytest

from allranks.local.folders import RunsHome
from allranks.local.stores import MlflowStores, mlflow_databases, mlflow_version
from allranks.local.sweep.history import MetricHistory
from tests.local.support import allranks, pipeline, run_json

SCRIPT = """
import os, sys, mlflow
with mlflow.start_run():
    mlflow.log_metric("m", float(sys.argv[1]) + int(os.environ.get("RANK", 0)))
    mlflow.log_text("by " + sys.argv[1], "note.txt")
"""
JOBS = """
type: pipeline
jobs:
  tune:
    type: sweep
    trial: {type: command, code: ./code, command: 'python train.py ${{inputs.x}}', environment: 'azureml:any:1', inputs: {x: {type: number}}}
    sampling_algorithm: grid
    search_space: {x: {type: choice, values: [1, 2]}}
    objective: {goal: minimize, primary_metric: m}
    limits: {max_total_trials: 2, max_concurrent_trials: 2}
  ranks:
    {type: command, code: ./code, command: python train.py 10, environment: 'azureml:any:1', distribution: {type: pytorch, process_count_per_instance: 2}}
"""


def write(folder: Path, jobs: str = JOBS) -> Path:
    (folder / "code").mkdir()
    (folder / "code/train.py").write_text(SCRIPT)
    return pipeline(folder, jobs)


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def database(path: Path, revision: str) -> Path:
    """The part of MLflow's tables that we look at."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript("""
        CREATE TABLE alembic_version (version_num VARCHAR);
        CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY AUTOINCREMENT, artifact_location VARCHAR);
        INSERT INTO experiments VALUES (0, '/somewhere/mlruns/0');
    """)
    connection.execute("INSERT INTO alembic_version VALUES (?)", [revision])
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowStores:
    """Of a home, with a cache that has the tables of the MLflow that is installed."""
    python = Path(sys.executable)
    database(tmp_path / "cache/allranks" / f"mlflow-{mlflow_version(python)}.db", "new")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = RunsHome(tmp_path / "home")
    home.prepare()
    return MlflowStores(home)


def ready(stores: MlflowStores) -> Path:
    assert stores.ready(Path(sys.executable))
    return stores.path(Path(sys.executable))


def test_a_database_of_another_version_is_left_to_that_version(stores, tmp_path):
    older = database(tmp_path / "home/mlflow.db", "old")
    before = older.read_bytes()
    assert ready(stores) == tmp_path / "home/mlflow-new.db"
    assert older.read_bytes() == before
    assert mlflow_databases(RunsHome(tmp_path / "home")) == [tmp_path / "home/mlflow-new.db", older]
    assert ready(MlflowStores(RunsHome(tmp_path / "home"))) == tmp_path / "home/mlflow-new.db", "found again"


def test_files_never_go_into_the_folder_of_a_run(stores, tmp_path):
    """Whoever creates an experiment says nothing, or names a folder below the one it works in."""
    path = ready(stores)
    assert path == tmp_path / "home/mlflow.db"
    work = f"{tmp_path}/home/runs/r/steps/s/nodes/0/work/mlruns"
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO experiments VALUES (1, NULL)")
    connection.execute("UPDATE experiments SET artifact_location = ? WHERE experiment_id = 1", [f"{work}/1"])
    connection.execute("INSERT INTO experiments VALUES (2, ?), (3, 's3://bucket/3')", [f"file://{work}/2"])
    connection.commit()
    connection.close()
    place = (tmp_path / "home/mlflow").as_uri()
    query = "SELECT artifact_location FROM experiments ORDER BY experiment_id"
    assert rows(path, query) == [(f"{place}/{number}",) for number in range(3)] + [("s3://bucket/3",)]
    moved = (tmp_path / "home").rename(tmp_path / "it's moved")
    assert rows(ready(MlflowStores(RunsHome(moved))), query)[1] == ((moved / "mlflow/1").as_uri(),)


def test_an_infinity_and_what_is_no_number_are_no_values(tmp_path):
    """MLflow keeps an infinity as the largest number that there is, and NaN as 0 with a flag."""
    home = RunsHome(tmp_path)
    trial = home.run("r").step("tune.0")
    connection = sqlite3.connect(home.mlflow)
    connection.executescript("""
        CREATE TABLE tags (run_uuid, key, value); INSERT INTO tags VALUES ('u', 'allranks.trial', 'r.tune.0');
        CREATE TABLE metrics (run_uuid, key, value DOUBLE, is_nan BOOLEAN, timestamp, step);
        INSERT INTO metrics VALUES ('u', 'm', 1.7976931348623157e308, 0, 1, 1), ('u', 'm', 0, 1, 2, 2);
    """)
    history = MetricHistory(trial, home, "m")
    assert history.values() == []
    assert history.current
    assert history.is_known_empty()
    assert not MetricHistory(trial, home, "other").is_known_empty()
    connection.execute("INSERT INTO metrics VALUES ('u', 'm', 3, 0, 3, 3)")
    assert history.values() == [], "somebody is writing"
    connection.commit()
    assert history.values() == [3]


@pytest.mark.slow
def test_trials_and_ranks_that_start_at_once_in_a_fresh_folder_lose_nothing(tmp_path):
    result = run_json(write(tmp_path), cwd=tmp_path)
    assert result["exit"] == 0, result
    tune = result["steps"]["tune"]
    assert [trial["metric"] for trial in tune["trials"]] == [1, 2]
    assert tune["best_trial"] == 0
    database = tmp_path / ".allranks/mlflow.db"
    assert rows(database, "SELECT value FROM metrics WHERE key = 'm' ORDER BY value") == [(1,), (2,), (10,), (11,)]
    places = [Path(urlparse(str(uri)).path) for (uri,) in rows(database, "SELECT artifact_uri FROM runs")]
    assert len(places) == 4
    for place in places:
        assert place.is_relative_to(tmp_path / ".allranks/mlflow"), "files of one run in the folder of another"
        assert (place / "note.txt").read_text().startswith("by 1") or "by 2" in (place / "note.txt").read_text()
    assert allranks("runs", "remove", result["run_id"], cwd=tmp_path).returncode == 0
    assert all((place / "note.txt").is_file() for place in places)

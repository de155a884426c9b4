"""What `runs remove` takes with it of a run's MLflow runs, and what it leaves."""

from __future__ import annotations

from pathlib import Path

from allranks.local.folders import RunsHome
from allranks.local.tracking import JOB_TAG
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.points import log_batch
from allranks.local.tracking.reading import TrackingReader
from allranks.local.tracking.registry import create_registered_model, create_version, get_download_uri
from allranks.local.tracking.removal import remove_tracked_runs
from allranks.local.tracking.runs import create_run
from allranks.local.tracking.store import TrackingStore

TABLES = ("runs", "metrics", "latest", "params", "datasets")


def filled(home: RunsHome, store: TrackingStore, run_id: str) -> Path:
    """A run whose step and whose script's own runs have logged something; the folder of the experiment's files."""
    jobs = JobRuns(home, run_id, "digits", "p")
    jobs.begin()
    step = jobs.begin_step("train")
    tags = [{"key": "mlflow.parentRunId", "value": step}]
    nested = create_run(store, {"experiment_id": jobs.experiment_id, "tags": tags, JOB_TAG: step})
    alone = create_run(store, {"experiment_id": jobs.experiment_id, JOB_TAG: step})
    for run in (run_id, step, *(made["run"]["info"]["run_id"] for made in (nested, alone))):
        log_batch(store, {"run_id": run, "metrics": [{"key": "m", "value": 1}], "params": [{"key": "p", "value": "1"}]})
        put(store.files / jobs.experiment_id / run / "artifacts" / "file.txt")
    jobs.close()
    return store.files / jobs.experiment_id


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    return file


def counts(store: TrackingStore) -> list[int]:
    return [len(store.connection.execute(f"SELECT 1 FROM {table}").fetchall()) for table in TABLES]  # noqa: S608


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_all_of_one_run_goes_and_nothing_of_another(tmp_path: Path) -> None:
    home = RunsHome(tmp_path)
    home.prepare()
    store = TrackingStore(home)
    folder = filled(home, store, "r1")
    before, files = counts(store), files_of(folder)
    filled(home, store, "r10")
    remove_tracked_runs(home, "r10")
    assert (counts(store), files_of(folder)) == (before, files)
    remove_tracked_runs(home, "r1")
    assert (counts(store), files_of(folder)) == ([0] * len(TABLES), set())
    with TrackingReader(home) as reader:
        assert reader.run_ids() == []
        assert reader.pairs("tags", "r1-train") == {}
    remove_tracked_runs(RunsHome(tmp_path / "elsewhere"), "r1")
    assert not (tmp_path / "elsewhere").exists(), "where nothing was ever logged nothing is made"


def test_what_registered_models_are_made_of_stays(tmp_path: Path) -> None:
    home = RunsHome(tmp_path)
    home.prepare()
    store = TrackingStore(home)
    folder = filled(home, store, "r1")
    create_registered_model(store, {"name": "m"})
    wanted = {put(folder / "r1-train/artifacts/by" / name / "MLmodel") for name in ("file", "name")}
    put(folder / "r1-train/artifacts/by/other/MLmodel")
    for source in ((folder / "r1-train/artifacts/by/file").as_uri(), "runs:/r1-train/by/name"):
        create_version(store, {"name": "m", "source": source})
    remove_tracked_runs(home, "r1")
    assert files_of(folder) == wanted
    assert get_download_uri(store, {"name": "m", "version": 2}) == {"artifact_uri": "runs:/r1-train/by/name"}

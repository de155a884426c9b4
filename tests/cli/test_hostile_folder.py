"""A folder of runs that somebody else has written: no name or link in it makes a command touch what lies elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from allranks.errors import StorageError
from allranks.local.assets import CloudStandIns
from allranks.local.cache import FinishedStep, StepCache, Workplace
from allranks.local.folders import RunFolder, RunsHome, child, write_json_file
from allranks.local.record_shapes import read_json_file
from allranks.local.tracking.artifacts import list_artifacts
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.reading import read_tracked_run
from allranks.local.tracking.runs import get_run
from allranks.local.tracking.store import TrackingError, TrackingStore

RUN, STEP = "20260101-000000-000-aaaa", "train"
PIPELINE = """
type: pipeline
jobs:
  say:
    type: command
    command: echo said > ${{outputs.o}}/x
    environment: azureml:x:1
    outputs: {o: {type: uri_folder}}
"""
BAD = ("ABSOLUTE", "../x", "a/../../x", "../../victim", ".", "..", "", "a\nb", "\0", "x" * 300)
bad = pytest.mark.parametrize("name", BAD, ids=[repr(one)[:20] for one in BAD])


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's that looks like anything that is ever removed; it has to be as it was."""
    folder = tmp_path / "victim"
    for name in ("precious", ".hidden/f", "outputs/f", "nodes/inputs/f", "steps/a/nodes/inputs/f", f"{RUN}/f"):
        put(folder / name)
    before = content(folder)
    yield folder
    assert content(folder) == before


@pytest.fixture
def home(tmp_path: Path, victim: Path) -> RunsHome:
    """A run that has ended, with an MLflow run of its step, each of which has logged a file."""
    home = RunsHome(tmp_path / "home" / ".allranks")
    home.prepare()
    jobs = JobRuns(home, RUN, "digits", "p")
    jobs.begin()
    jobs.begin_step(STEP)
    for run in (RUN, f"{RUN}-{STEP}"):
        put(home.mlflow_files / jobs.experiment_id / run / "artifacts" / "f")
    for step in (STEP, ""):
        jobs.end("succeeded", step)
    jobs.close()
    folder = home.run(RUN)
    folder.step(STEP).logs.mkdir(parents=True)
    put(folder.step(STEP).logs / "std_log.txt")
    write_run(folder)
    return home


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("precious\n")
    return file


def content(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


def write_run(folder: RunFolder, **changed: Any) -> None:
    steps = {STEP: step_record(folder)}
    document = {"run_id": folder.id, "status": "succeeded", "target": "p", "values": {}, "started": 1.0, "ended": 2.0}
    write_json_file(folder.state, {**document, "steps": steps, **changed})


def step_record(folder: RunFolder, **changed: Any) -> dict[str, Any]:
    place = str(folder.path / "steps" / STEP)
    found = {"status": "succeeded", "seconds": 1.0, "outputs": {}, "failure": None, "after": [], "folder": place}
    return {**found, "started": 0.0, "attempts": 1, "nodes": 1, "processes": 1, "component": "", **changed}


def shown(name: str, victim: Path) -> str:
    return str(victim) if name == "ABSOLUTE" else name


def change(home: RunsHome, *statements: tuple[str, Mapping[str, Any]]) -> None:
    with sqlite3.connect(home.tracking) as connection:
        connection.executescript("PRAGMA journal_mode = DELETE")
        for statement, values in statements:
            connection.execute(statement, values)
    connection.close()


def rows(home: RunsHome) -> int:
    with sqlite3.connect(home.tracking) as connection:
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    connection.close()
    return int(count)


ROW = """INSERT INTO runs (run_id, experiment_id, name, user, status, started, managed)
    VALUES (:run, :of, 'x', 'u', :status, 0, :managed)"""
TAG = "INSERT INTO tags VALUES ('run', :run, 'mlflow.parentRunId', :parent)"


@bad
@pytest.mark.parametrize("place", ["run", "experiment"])
def test_no_id_of_the_database_leads_out_of_the_folder_of_files(
    cli: Callable[..., Any], home: RunsHome, victim: Path, name: str, place: str
) -> None:
    given = shown(name, victim)
    values: dict[str, Any] = {"run": given if place == "run" else "r1", "of": given if place == "experiment" else "0"}
    values |= {"parent": RUN, "status": "FINISHED", "managed": 0}
    change(home, (ROW, values), (TAG, values))
    if place != "run":
        put(home.mlflow_files / "0" / "r1" / "f")
    files, count = content(home.path / "mlflow"), rows(home)
    called = cli("runs", "remove", RUN, "--runs-dir", str(home.path))
    assert called.code == 2
    assert f"{repr(given)[:255]} in {home.tracking} names nothing in {home.mlflow_files}" in called.err
    assert "Traceback" not in called.err
    assert content(home.path / "mlflow") == files, "nothing of the run is removed"
    assert rows(home) == count
    assert [run.id for run in home.all_runs()] == [RUN]


def test_a_link_among_the_files_of_mlflow_is_not_followed(
    cli: Callable[..., Any], home: RunsHome, victim: Path
) -> None:
    values = {"run": RUN, "of": "0", "parent": RUN, "status": "FINISHED", "managed": 0}
    (home.mlflow_files / "0").symlink_to(victim)
    change(home, ("UPDATE runs SET experiment_id = '0'", values))
    called = cli("runs", "remove", RUN, "--runs-dir", str(home.path))
    assert (called.code, f"is a link to {victim}" in called.err) == (2, True)
    assert [run.id for run in home.all_runs()] == [RUN]
    (home.mlflow_files / "0").unlink()
    assert cli("runs", "remove", RUN, "--runs-dir", str(home.path)).code == 0


@bad
def test_a_killed_run_of_the_database_is_looked_for_among_the_runs_alone(
    home: RunsHome, victim: Path, name: str
) -> None:
    own = put(home.run(RUN).path / "steps" / STEP / "nodes" / "inputs" / "f")
    values = {"run": shown(name, victim), "of": "0", "status": "RUNNING", "managed": 1}
    change(home, (ROW, values), ("UPDATE runs SET status = 'RUNNING'", {}))
    jobs = JobRuns(home, "20260102-000000-000-bbbb", "digits", "p")
    jobs.begin()
    jobs.close()
    assert not own.exists(), "what a killed engine left is removed all the same"


@bad
def test_what_is_logged_is_not_read_and_not_listed_elsewhere(home: RunsHome, victim: Path, name: str) -> None:
    given = shown(name, victim)
    values = {"run": given, "of": "0", "status": "FINISHED", "managed": 0}
    change(home, (ROW, values))
    with pytest.raises(StorageError, match="names nothing"):
        read_tracked_run(home, given)
    store = TrackingStore(home)
    with pytest.raises((StorageError, TrackingError), match=r"names nothing|Missing value"):
        get_run(store, {"run_id": given})
    (home.mlflow_files / "link").symlink_to(victim)
    experiment = get_run(store, {"run_id": RUN})["run"]["info"]["experiment_id"]
    (home.mlflow_files / experiment / RUN / "artifacts" / "link").symlink_to(victim)
    for path in ("link", "link/outputs"):
        assert list_artifacts(store, {"run_id": RUN, "path": path})["files"] == []
    store.close()


@bad
def test_a_name_in_run_json_is_no_path(cli: Callable[..., Any], home: RunsHome, victim: Path, name: str) -> None:
    folder, given = home.run(RUN), shown(name, victim)
    for changed in (
        {"run_id": given},
        {"steps": {given: step_record(folder)}},
        {"steps": {STEP: step_record(folder, reused_from=given)}},
        {"steps": {STEP: step_record(folder, outputs={given: "/"})}},
        {"outputs": {given: "/"}},
    ):
        write_run(folder, **changed)
        called = cli("runs", "show", RUN, "--runs-dir", str(home.path))
        assert "run.json is damaged" in called.out + called.err, changed
        assert cli("runs", "logs", RUN, given or " ", "--runs-dir", str(home.path)).code == 2


@bad
def test_a_command_takes_no_path_for_a_run_or_a_step(
    cli: Callable[..., Any], home: RunsHome, victim: Path, name: str
) -> None:
    given = shown(name, victim)
    for command in (["runs", "remove", given], ["runs", "logs", RUN, given], ["run", "--resume", given]):
        called = cli(*command, "--runs-dir", str(home.path))
        assert (called.code, "Traceback" in called.err) == (2, False)
    called = cli("env", "remove", given, "--runs-dir", str(home.path))
    assert called.code == 2
    assert [run.id for run in home.all_runs()] == [RUN]


@bad
@pytest.mark.parametrize("field", ["run_id", "step"])
def test_a_record_of_the_cache_that_names_a_path_is_none(home: RunsHome, victim: Path, name: str, field: str) -> None:
    records, outputs = StepCache(home), home.run(RUN).step(STEP).outputs
    put(outputs / "o" / "f")
    records.remember("k", FinishedStep(RUN, STEP, "1"), outputs, ["o"])
    assert records.find("k") == FinishedStep(RUN, STEP, "1")
    file = home.cache / "k.json"
    write_json_file(file, {**json.loads(file.read_text()), field: shown(name, victim)})
    assert records.find("k") is None


@bad
def test_a_trial_of_a_journal_that_names_a_path_is_none(home: RunsHome, victim: Path, name: str) -> None:
    entry = {"key": "k", "run": RUN, "status": "failed", "message": "", "parameters": {"x": 1}, "silent": False}
    file = Workplace(home, "k").journal
    file.parent.mkdir()
    write_json_file(file, [entry])
    assert read_json_file(file) == [entry]
    for field in ("run", "key") if name else ("run",):
        write_json_file(file, [{**entry, field: shown(name, victim)}])
        assert read_json_file(file) is None


@bad
def test_every_path_of_a_folder_of_runs_checks_its_name(home: RunsHome, victim: Path, name: str) -> None:
    given = shown(name, victim)
    for path in (home.run, home.work, home.run(RUN).step, lambda one: child(home.path, "runs", one)):
        with pytest.raises(StorageError, match="names nothing"):
            path(given)
    for value in (None, 1, b"x", ["x"]):
        with pytest.raises(StorageError):
            child(home.path, value)


def test_an_asset_that_lies_elsewhere_is_none(home: RunsHome, victim: Path) -> None:
    (home.path / "assets").mkdir()
    for path, found in ((victim, None), (home.run(RUN).path, home.run(RUN).path)):
        write_json_file(home.path / "assets" / "a.json", {"name": "a", "versions": {"1": {"path": str(path)}}})
        assert CloudStandIns(home=home).find("azureml:a:1") == found
    documents: list[Any] = [[], {"versions": {"1": {}}}, {"versions": {"1": {"path": 3}}}]
    for document in documents:
        write_json_file(home.path / "assets" / "a.json", document)
        assert CloudStandIns(home=home).find("azureml:a:1") is None


@pytest.mark.parametrize("name", ["runs", "work", "cache", "mlflow", "assets", "bytecode", "tracking.db"])
def test_a_part_of_the_folder_that_is_a_link_elsewhere_is_refused(
    cli: Callable[..., Any], home: RunsHome, victim: Path, tmp_path: Path, name: str
) -> None:
    target = victim / "precious" if name == "tracking.db" else victim
    place = home.path / name
    if place.is_dir():
        shutil.rmtree(place)
    for file in home.path.glob(f"{name}*"):
        file.unlink()
    place.symlink_to(target)
    (tmp_path / "p.yml").write_text(PIPELINE)
    commands = [["run", str(tmp_path / "p.yml")], ["runs", "remove", RUN]]
    for command in commands:
        called = cli(*command, "--runs-dir", str(home.path))
        assert (called.code, f"{place} is a link to {target}" in called.err) == (2, True), called.err


def test_environments_in_a_linked_folder_are_not_removed(cli: Callable[..., Any], home: RunsHome, victim: Path) -> None:
    place = home.path / "environments"
    place.symlink_to(victim)
    for names in (["outputs"], ["--all"]):
        called = cli("env", "remove", *names, "--runs-dir", str(home.path))
        assert (called.code, "is a link to" in called.err) == (2, True)
    place.unlink()
    place.mkdir()
    (place / "one").symlink_to(victim)
    (place / "two").mkdir()
    (place / "two.log").symlink_to(victim / "precious")
    for name in ("one", "two"):
        assert cli("env", "remove", name, "--runs-dir", str(home.path)).code == 2


def test_a_run_that_is_a_link_is_shown_and_not_removed(
    cli: Callable[..., Any], home: RunsHome, victim: Path, tmp_path: Path
) -> None:
    moved = home.run(RUN).path.rename(tmp_path / "moved")
    (home.runs / RUN).symlink_to(moved)
    assert cli("runs", "show", RUN, "--runs-dir", str(home.path)).code == 0
    called = cli("runs", "remove", RUN, "--runs-dir", str(home.path))
    assert (called.code, f"is a link to {moved}" in called.err) == (2, True)
    assert (moved / "run.json").is_file()
    assert rows(home) == 2


def test_links_inside_of_what_is_removed_are_not_followed(
    cli: Callable[..., Any], home: RunsHome, victim: Path, tmp_path: Path
) -> None:
    (home.run(RUN).path / "link").symlink_to(victim)
    (home.run(RUN).step(STEP).path / "link").symlink_to(victim)
    (next(home.mlflow_files.glob(f"*/{RUN}")) / "artifacts" / "link").symlink_to(victim)
    assert cli("runs", "remove", RUN, "--runs-dir", str(home.path)).code == 0
    assert home.all_runs() == []
    assert content(home.path / "mlflow") == {}


def test_links_to_steps_and_workplaces_elsewhere_are_left_alone(
    cli: Callable[..., Any], home: RunsHome, victim: Path, tmp_path: Path
) -> None:
    (home.run(RUN).path / "steps" / "link").symlink_to(victim)
    (home.path / "work" / "k").symlink_to(victim)
    (home.path / "work" / ".k").symlink_to(victim)
    (home.runs / ".k.removed").symlink_to(victim)
    change(home, ("UPDATE runs SET status = 'RUNNING'", {}))
    (tmp_path / "p.yml").write_text(PIPELINE)
    assert cli("run", str(tmp_path / "p.yml"), "--runs-dir", str(home.path)).code == 0
    with pytest.raises(StorageError, match="is a link to"):
        home.run(RUN).step("link")
    assert cli("runs", "remove", RUN, "--runs-dir", str(home.path)).code == 0


def test_outputs_of_an_unfinished_step_that_are_a_link_elsewhere_are_not_emptied(home: RunsHome, victim: Path) -> None:
    place = Workplace(home, "k")
    assert place.acquire()
    (place.path / "outputs").symlink_to(victim)
    with pytest.raises(StorageError, match="is a link to"):
        place.prepare([])
    (place.path / "outputs").unlink()
    place.prepare([])
    (place.outputs / "kept").symlink_to(victim)
    (place.outputs / "own").mkdir()
    place.prepare(["kept", "own"])
    assert [entry.name for entry in place.outputs.iterdir()] == ["own"], "a script would write through the link"
    place.release()


def test_what_is_written_takes_the_place_of_a_link(cli: Callable[..., Any], home: RunsHome, victim: Path) -> None:
    folder = home.run(RUN)
    write_run(folder, status="running", steps={})
    for name in ("report.html", "page.json"):
        (folder.path / name).symlink_to(victim / "precious")
    (home.cache / "k.json").symlink_to(victim / "precious")
    assert cli("runs", "open", RUN, "--runs-dir", str(home.path)).code == 0
    assert "<html" in folder.report.read_text()
    StepCache(home).remember("k", FinishedStep(RUN, STEP, "1"), folder.step(STEP).outputs, [])
    assert not (home.cache / "k.json").is_symlink()


def test_a_step_that_was_executed_elsewhere_is_not_believed(home: RunsHome, victim: Path) -> None:
    folder = home.run(RUN)
    own = folder.step(STEP)
    shutil.rmtree(own.logs)
    own.logs.symlink_to(victim / "user_logs")
    assert folder.executed(STEP) == own
    assert folder.executed(STEP, str(victim)) == own
    other = home.run("20260102-000000-000-bbbb").step(STEP)
    other.logs.mkdir(parents=True)
    own.logs.unlink()
    own.logs.symlink_to(os.path.relpath(other.logs, own.path))
    assert folder.executed(STEP).path.samefile(other.path)

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks.local.assets import register_asset
from allranks.local.cache import Workplace
from allranks.local.folders import RunFolder, RunsHome, write_json_file
from allranks.local.page.logs import log_before
from allranks.local.result import last_lines
from allranks.wording import duration_words, run_seconds


def make_run(home: Path, run_id: str, status: str = "succeeded", **steps: dict[str, Any]) -> RunFolder:
    folder = RunsHome(home).run(run_id)
    default = {"train": {"status": status, "seconds": 3.0, "nodes": 2, "processes": 2, "metrics": {"accuracy": 0.97}}}
    for name in steps or default:
        folder.step(name).logs.mkdir(parents=True)
    state = {
        "run_id": run_id,
        "status": status,
        "target": "image_classification",
        "values": {"epochs": 3},
        "scale": {"train": [2, 2]},
        "started": 1_700_000_000.0,
        "ended": None if status == "running" else 1_700_000_004.0,
        "steps": steps or default,
    }
    write_json_file(folder.state, state)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".allranks"


@pytest.fixture
def runs(cli: Callable[..., Any], home: Path) -> Callable[..., Any]:
    return lambda *arguments: cli("runs", *arguments, "--runs-dir", str(home))


def test_no_runs(runs: Callable[..., Any], home: Path) -> None:
    assert "no runs in" in runs("list").out
    assert runs("list", "--json").json == {"runs": [], "total": 0}
    assert not home.exists(), "looking makes no folder"


def test_list_is_the_default_and_shows_the_newest_first(
    cli: Callable[..., Any], runs: Callable[..., Any], home: Path
) -> None:
    make_run(home, "20260101-a")
    make_run(home, "20260102-b", "failed")
    lines = runs("list").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["20260102-b", "failed"], ["20260101-a", "succeeded"]]
    assert "image_classification epochs=3 --scale train=2x2  train.accuracy=0.97" in lines[0]
    assert cli("runs", "--runs-dir", str(home)).out.splitlines() == lines
    assert cli("runs", "--runs-dir", str(home), "list").out.splitlines() == lines
    assert [run["run_id"] for run in runs("list", "--json").json["runs"]] == ["20260102-b", "20260101-a"]


def test_a_run_whose_engine_is_gone_is_not_running(runs: Callable[..., Any], home: Path) -> None:
    step = {"status": "running", "started": 1.5, "seconds": 0.1, "nodes": 1, "processes": 1, "metrics": {}}
    folder = make_run(home, "r1", "running", train=step)
    log = folder.step("train").log(0)
    log.write_text("epoch 4\n")
    for file, seconds in ((folder.state, 1.6), (log, 91.5)):
        os.utime(file, (0, 1_700_000_000 + seconds))
    told = runs("list", "--json").json["runs"][0]
    assert (told["status"], told["steps"]["train"]["status"]) == ("cancelled", "cancelled")
    assert (told["ended"], told["steps"]["train"]["seconds"]) == (1_700_000_091.5, 90.0), (
        "it ran until it wrote no more"
    )
    shown = runs("show", "r1").out
    assert "1 min 32 s" in shown
    assert "1 min 30 s" in shown
    assert f"note       {told['message']}\n  to resume  allranks run --resume r1 --runs-dir {home}\n" in shown
    assert "its engine was killed" in told["message"]
    folder.lock()
    told = runs("list", "--json").json["runs"][0]
    assert (told["status"], told["ended"]) == ("running", None)
    state = json.loads(folder.state.read_text())
    write_json_file(folder.state, state | {"started": 1.0})
    assert re.search(r"  \d{6} h \d\d min  ", runs("list").out), "the time since the start of 1970"


@pytest.mark.parametrize("name", ["latest", "20260102-b", "20260102"])
def test_show_finds_a_run_by_id_beginning_or_latest(runs: Callable[..., Any], home: Path, name: str) -> None:
    make_run(home, "20260101-a")
    folder = make_run(home, "20260102-b")
    folder.report.write_text("<html>")
    out = runs("show", name).out
    assert "20260102-b" in out
    assert "accuracy=0.97" in out
    assert "epochs=3" in out
    assert str(folder.report) in out
    assert runs("show", name, "--json").json == json.loads(folder.state.read_text())


@pytest.mark.parametrize("name", ["2026", "nothing"])
def test_an_unclear_name_lists_the_runs(runs: Callable[..., Any], home: Path, name: str) -> None:
    make_run(home, "20260101-a")
    make_run(home, "20260102-b")
    called = runs("show", name)
    assert called.code == 2
    assert "20260101-a, 20260102-b" in called.err


def test_logs_mark_the_rank_when_there_are_several(runs: Callable[..., Any], home: Path) -> None:
    step = make_run(home, "r1").step("train")
    for rank in (10, 2):
        step.log(rank).write_text(f"from {rank}\nand no newline")
    assert runs("logs", "r1", "train").out.splitlines() == [
        "[rank 2] from 2",
        "[rank 2] and no newline",
        "[rank 10] from 10",
        "[rank 10] and no newline",
    ]
    assert runs("logs", "r1", "train", "--rank", "10").out == "from 10\nand no newline\n"
    assert runs("logs", "r1", "train", "--json").json["logs"] == {"2": str(step.log(2)), "10": str(step.log(10))}


def test_logs_hold_nothing_that_a_terminal_would_obey(runs: Callable[..., Any], home: Path) -> None:
    log = make_run(home, "r1").step("train").log(None)
    log.write_bytes(
        b"a\x1b]0;title\x07b\x1b[2J\n\n10%\r90%\r\x1b[32mdone\x1b[0m\r\n\x1b[5Apass\x1b[31mword=hunter2abc\n"
    )
    assert runs("logs", "r1", "train").out.splitlines() == ["ab", "", "done", "password=***"]
    assert last_lines(log) == ("ab", "", "done", "password=***"), "so does the failure of a step"
    assert log_before(log).text == "ab\n\ndone\npassword=***\n", "and its page"


def test_logs_of_a_reused_step_are_those_of_the_run_that_ran_it(runs: Callable[..., Any], home: Path) -> None:
    make_run(home, "r1").step("train").log(None).write_text("trained\n")
    later = make_run(home, "r2", train={"status": "succeeded", "reused": True, "reused_from": "r1"})
    later.step("train").logs.rmdir()
    assert runs("logs", "r2", "train").out == "trained\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("r1", "trian"), "no step 'trian' (did you mean 'train'?"),
        (("r1", "train", "--rank", "7"), "Its ranks: 0, 1."),
        (("r1", "train", "--rank", "x"), "invalid int value"),
        (("r1", "idle"), "has not started"),
    ],
)
def test_wrong_logs(runs: Callable[..., Any], home: Path, arguments: tuple[str, ...], message: str) -> None:
    step = make_run(home, "r1", train={"status": "succeeded"}, idle={"status": "skipped"}).step("train")
    step.log(0).write_text("")
    step.log(1).write_text("")
    called = runs("logs", *arguments)
    assert called.code == 2
    assert message in called.err


def test_remove(runs: Callable[..., Any], home: Path) -> None:
    folder = make_run(home, "r1")
    snapshot = folder.step("train").snapshot
    snapshot.mkdir()
    (snapshot / "train.py").touch()
    snapshot.chmod(0o500)
    assert runs("remove", "r1").out == "removed r1\n"
    assert list(RunsHome(home).runs.iterdir()) == []


def test_remove_refuses_a_run_that_others_reuse(runs: Callable[..., Any], home: Path) -> None:
    make_run(home, "r1")
    twice = {"status": "succeeded", "reused": True, "reused_from": "r2"}
    make_run(home, "r2", train={"status": "succeeded", "reused": True, "reused_from": "r1"}, again=twice)
    called = runs("remove", "r1")
    assert called.code == 2
    assert "reuse: r2" in called.err
    assert runs("remove", "r2").code == 0
    assert runs("remove", "r1").code == 0


def test_remove_refuses_a_run_that_a_running_one_reuses(runs: Callable[..., Any], home: Path) -> None:
    """run.json is written when a run begins, before it has reused anything."""
    make_run(home, "r1")
    running = make_run(home, "r2", "running")
    write_json_file(running.step("train").state, {"status": "succeeded", "reused": True, "reused_from": "r1"})
    running.lock()
    called = runs("remove", "r1")
    assert called.code == 2
    assert "r2" in called.err


def test_remove_refuses_a_run_that_a_registered_asset_lies_in(runs: Callable[..., Any], home: Path) -> None:
    for run in ("r1", "r2"):
        register_asset(RunsHome(home), "digits", None, make_run(home, run).step("train").outputs / "data", "uri_folder")
    called = runs("remove", "r1")
    assert called.code == 2
    assert "holds what is registered as azureml:digits:1." in called.err
    assert runs("remove", "r1", "--force").code == 0
    assert "azureml:digits:2." in runs("remove", "r2").err


def test_remove_takes_along_what_was_not_finished(runs: Callable[..., Any], home: Path) -> None:
    for run, key in (("r1", "mine"), ("r2", "both"), ("r3", "both")):
        write_json_file(make_run(home, run, "failed").step("train").state, {"key": key})
    for key in ("mine", "both", "killed"):
        (RunsHome(home).work(key) / "outputs").mkdir(parents=True)
        (RunsHome(home).work(key) / "outputs" / "checkpoint").touch()
    for run, left in (("r1", {"both"}), ("r2", {"both"}), ("r3", set())):
        assert runs("remove", run).code == 0
        assert {path.name for path in (home / "work").iterdir()} == left


def test_remove_leaves_what_an_engine_is_writing(runs: Callable[..., Any], home: Path) -> None:
    write_json_file(make_run(home, "r1", "failed").step("train").state, {"key": "busy"})
    place = Workplace(RunsHome(home), "busy")
    assert place.acquire()
    assert runs("remove", "r1").code == 0
    assert place.path.is_dir()
    place.release()


def test_remove_refuses_a_running_run(runs: Callable[..., Any], home: Path) -> None:
    folder = make_run(home, "r1", "running")
    folder.lock()
    called = runs("remove", "r1", "--force")
    assert called.code == 2
    assert "is running" in called.err
    assert folder.path.is_dir()


PIPELINE = """\
type: pipeline
jobs:
  talk:
    type: command
    component:
      type: command
      name: talk
      environment: {image: "python:3.11-slim"}
      distribution: {type: pytorch, process_count_per_instance: 2}
      command: echo rank $RANK
"""


def test_a_real_run(cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talk.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        called = cli(*arguments)
        assert called.code == 0, called.err
        return str(called.out)

    result = json.loads(call("run", "talk.yaml", "--json"))
    end_of_run = call("run", "talk.yaml", "--events", "events.jsonl")
    again, first = json.loads(call("runs", "--json"))["runs"]
    assert first["run_id"] == result["run_id"]
    told = [result, json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])["result"]]
    assert [(one["started"], one["ended"]) for one in told] == [
        (one["started"], one["ended"]) for one in (first, again)
    ]
    kept = json.loads(call("runs", "show", result["run_id"], "--json"))
    assert [(name, one["resources"], one["details"]) for name, one in kept["steps"].items()]
    assert result["steps"] == kept["steps"], "what was read for the page is told by all"
    took = duration_words(run_seconds(again))
    page = next(tmp_path.glob(f".allranks/runs/{again['run_id']}/report.html")).read_text()
    assert f"succeeded in {took}, 1 of 1 steps reused\n" in end_of_run
    for shown in (page, call("runs", "show", "latest"), call("runs").splitlines()[0]):
        assert took in shown, "one duration for all who tell of a run"
    assert call("runs", "logs", result["run_id"], "talk") == "[rank 0] rank 0\n[rank 1] rank 1\n"
    assert call("runs", "logs", "latest", "talk", "--rank", "1", "--follow") == "rank 1\n"
    assert "succeeded (reused)  1 x 2" in call("runs", "show", "latest")
    call("runs", "remove", again["run_id"])
    call("runs", "remove", result["run_id"])
    assert call("runs").startswith("no runs")


def test_logs_without_a_step_list_the_steps(runs: Callable[..., Any], home: Path) -> None:
    steps = {name: {"status": status, "seconds": 3.0, "metrics": {}} for name, status in STATUSES.items()}
    folder = make_run(home, "20260101-a", **steps)
    folder.step("train").log(0).write_text("one\n")
    folder.step("train").log(1).write_text("one\n")
    listed = runs("logs", "latest")
    assert listed.code == 0, listed.err
    assert [line.split() for line in listed.out.splitlines()] == [
        ["prepare", "succeeded", "no", "logs"],
        ["train", "failed", "2", "logs", str(folder.step("train").logs)],
        ["one", "step's", "log:", "allranks", "runs", "logs", "20260101-a", "STEP"],
    ]
    document = runs("logs", "latest", "--json").json
    assert document["steps"]["train"] == {"0": str(folder.step("train").log(0)), "1": str(folder.step("train").log(1))}
    for option in (["--follow"], ["--rank", "1"]):
        assert "--follow and --rank are about one step" in runs("logs", "latest", *option).err


STATUSES = {"prepare": "succeeded", "train": "failed"}

"""Files of a run that were damaged: the views say so in words, and show what is left. Found by ``make fuzz``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.main import main
from allranks.local.record_shapes import find_record_fault, is_resource_sample, read_json_file
from tests.local.support import allranks

PIPELINE = "type: pipeline\njobs:\n  a:\n    type: command\n    command: echo\n    environment: azureml:any@latest\n"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ran")
    (folder / "p.yaml").write_text(PIPELINE)
    assert allranks("run", "p.yaml", cwd=folder).returncode == 0
    (folder / "p.yaml").unlink()  # so that what the run keeps of it is read
    return folder


@pytest.fixture
def run(ran: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Files of the run, each as it was when the test ends."""
    monkeypatch.chdir(ran)
    (folder,) = (ran / ".allranks" / "runs").iterdir()
    kept: dict[Path, bytes] = {}

    def file(name: str) -> Path:
        kept[folder / name] = (folder / name).read_bytes()
        return folder / name

    yield file  # type: ignore[misc]
    for path, content in kept.items():
        path.unlink()
        path.write_bytes(content)


def change(path: Path, *place: Any, value: Any) -> None:
    document = holder = json.loads(path.read_text())
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("status",), None, "run.status: null is not a text"),
        (("steps",), [], "run.steps: is no object"),
        (("steps", "a", "seconds"), 10**400, "run.steps.a.seconds: 1000"),
        (("steps", "a", "metrics"), {"loss": "x"}, 'run.steps.a.metrics.loss: "x" is not a number'),
        (("steps", "a", "failure"), "x", "run.steps.a.failure: is no object"),
        (("steps", "a", "reused_from"), "../..", 'run.steps.a.reused_from: "../.." is not a name of a file'),
        (("steps", "a", "component"), "\ud800", "run.steps.a.component: "),
    ],
)
def test_a_damaged_run_is_shown_as_unknown_and_says_why(run, capsys, place, value, says) -> None:
    change(run("run.json"), *place, value=value)
    assert main(["runs", "list"]) == 0
    assert "unknown" in capsys.readouterr().out
    assert main(["runs", "show", "latest"]) == 0
    assert f"run.json is damaged: {says}" in capsys.readouterr().out


def test_what_is_no_file_is_not_waited_for(run, capsys) -> None:
    path = run("run.json")
    path.unlink()
    os.mkfifo(path)
    assert find_record_fault(path) == "is no file"
    assert read_json_file(path) is None
    assert main(["runs", "list"]) == 0


def test_a_record_beyond_the_budget_is_not_read(run, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ALLRANKS_BUDGET", "record_bytes=10")
    assert main(["runs", "show", "latest"]) == 0
    assert "more than 10. To raise the limit: ALLRANKS_BUDGET=record_bytes=N" in capsys.readouterr().out
    del run


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("definition", "steps", "a", "component", "code"), "x"),
        (("definition", "steps", "a", "resources"), None),
        (("definition", "steps"), {"a": {}}),
        (("request", "values"), "x"),
        (("request", "script"), "x"),
        (("request", "target"), "a\0b"),
    ],
)
def test_a_damaged_request_is_not_resumed(run, capsys, place, value) -> None:
    change(run("request.json"), *place, value=value)
    assert main(["run", "--resume", "latest", "--dry-run"]) == 2
    assert "cannot be resumed" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"over": 0}, {"rank": "x"}, {"cpu_seconds": None}, {"of": []}, {"rss_bytes": 1}])
def test_a_sample_that_cannot_be_reckoned_with_is_passed_over(change) -> None:
    sums = ("cpu_seconds", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes")
    sound = {"of": "rank", "rank": 0, "node": 0, "at": 1.0, "over": 0.5, **dict.fromkeys(sums, 1)}
    assert is_resource_sample(sound)
    assert not is_resource_sample({**sound, **change})


def test_what_a_script_may_log_is_no_damage(run) -> None:
    path = run("run.json")
    change(path, "steps", "a", "metrics", value={"loss": 1e30, "count": 10**25, "rate": "NaN"})
    change(path, "steps", "a", "params", value={"p": "a\0b", "name": "\udcff"})
    assert find_record_fault(path) == ""

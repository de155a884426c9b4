"""Jobs are followed, listed, looked into and cancelled; the error of a step is not hidden behind the job's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from allranks.azure import watch
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import Cli

LOG = "step 1\nTraceback (most recent call last):\nValueError: no such luck, sig=abc%3D\n"


@pytest.mark.slow
def test_to_success(ready: StandIn, cli: Cli) -> None:
    done = cli("submit", "image_classification", "--watch")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert (
        lines[0]
        == f"sending image_classification to the workspace lab of resource group research, as {lines[1].split()[1]}"
    )
    assert lines[1].startswith("job image_classification_")
    assert "https://ml.stand-in.test/runs/image_classification_" in lines[2]
    assert [line.split(",")[0] for line in lines if line.startswith("  train: ")][-3:] == [
        "  train: queued",
        "  train: running",
        "  train: succeeded",
    ]
    assert lines[-2] == "succeeded"


@pytest.mark.slow
def test_to_a_steps_failure(ready: StandIn, cli: Cli) -> None:
    ready.script("fails", step="train", log=LOG, rank="1")
    done = cli("submit", "image_classification", "--watch")
    assert done.code == 1
    assert "error: step train: Execution failed. User process exited with status code 1" in done.err
    assert "  | Traceback (most recent call last):\n  | ValueError: no such luck, sig=***" in done.err
    assert "  log: user_logs/std_log_process_1.txt (and user_logs/std_log_process_0.txt)" in done.err
    assert "evaluate: cancelled" in done.out
    assert "failed: train\n" in done.out
    job = done.out.splitlines()[1].split()[1]
    again = cli("runs", "watch", job, "--json")
    assert again.code == 1
    assert again.json["steps"]["train"]["status"] == "failed"
    assert again.json["steps"]["train"]["log"]["lines"][-1] == "ValueError: no such luck, sig=***"
    log = cli("runs", "logs", "--azure", job, "train", "--rank", "1")
    assert log.out == LOG.replace("abc%3D", "***")
    assert "[std_log_process_0] starting" in cli("runs", "logs", "--azure", job, "train").out
    nowhere = cli("runs", "logs", "--azure", job, "trian")
    assert (nowhere.code, "did you mean 'train'" in nowhere.err) == (2, True)


@pytest.mark.slow
def test_a_failure_inside_a_nested_pipeline(ready: StandIn, cli: Cli, small: str) -> None:
    ready.script("fails", step="outer.count", log="ls: no such folder\n")
    done = cli("submit", small, "--watch")
    assert done.code == 1
    assert "error: step outer.count: Execution failed" in done.err
    assert "ls: no such folder" in done.err
    assert done.out.count("failed: outer.count\n") == 1
    assert done.err.count("error:") == 1, "the outer step's failure says nothing more"


@pytest.mark.slow
def test_more_steps_than_one_page(ready: StandIn, cli: Cli, small: str) -> None:
    document = yaml.safe_load(Path(small).read_text())
    document["jobs"] = {f"outer_{number}": document["jobs"]["outer"] for number in range(12)}
    Path(small).write_text(yaml.safe_dump(document))
    done = cli("submit", small, "--watch", "--json")
    assert done.code == 0, done.err
    assert len(done.json["steps"]) == 24
    assert {step["status"] for step in done.json["steps"].values()} == {"succeeded"}


@pytest.mark.slow
def test_cancelled_on_request(ready: StandIn, cli: Cli, small: str) -> None:
    ready.script("hangs")
    job = cli("submit", small, "--json").json["job"]
    assert cli("runs", "show", "--azure", job).code == 0
    assert cli("runs", "show", "--azure", "latest", "--json").json["status"] == "running"
    done = cli("runs", "cancel", job)
    assert (done.code, done.out) == (0, f"{job}: cancelled\n")
    assert len(ready.requests("POST", f"/jobs/{job}/cancel")) == 1
    assert cli("runs", "cancel", job).code == 0, "cancelled already"
    assert cli("runs", "watch", job).code == 1
    shown = cli("runs", "show", "--azure", job)
    assert "outer.count  cancelled" in shown.out


@pytest.mark.slow
def test_a_job_that_is_over_cannot_be_cancelled(ready: StandIn, cli: Cli, small: str) -> None:
    job = cli("submit", small, "--watch", "--json").json["job"]
    done = cli("runs", "cancel", job)
    assert (done.code, done.err) == (2, f"error: job {job} is over: it has succeeded.\n")


@pytest.mark.slow
def test_looking_away_leaves_the_job(ready: StandIn, cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    ready.script("hangs")
    monkeypatch.setattr(watch, "job_status", interrupted)
    done = cli("submit", small, "--watch")
    assert done.code == 130
    assert "allranks runs watch job_" in done.err
    assert "allranks runs cancel job_" in done.err
    assert not ready.requests("POST", "/cancel")


def test_a_watch_outlasts_a_service_that_is_not_well(ready: StandIn, cli: Cli, small: str) -> None:
    ready.fault("GET /history", 503, times=4, retry_after=0.01)
    ready.fault("GET /history", 0, times=1)
    assert cli("submit", small, "--watch").code == 0


@pytest.mark.slow
def test_jobs_are_listed_beside_local_runs(ready: StandIn, cli: Cli, small: str, tmp_path: Path) -> None:
    job = cli("submit", small, "--json").json["job"]
    done = cli("runs", "--azure", "--runs-dir", str(tmp_path / "runs"), "--json")
    assert (done.json["runs"], [one["job"] for one in done.json["jobs"]]) == ([], [job])
    table = cli("runs", "list", "--azure", "--runs-dir", str(tmp_path / "runs"))
    assert table.out.startswith(f"{job}  ")
    (tmp_path / "a.py").write_text("print(1)\n")
    assert cli("run", str(tmp_path / "a.py"), "--scale", "1x1", "--runs-dir", str(tmp_path / "runs")).code == 0
    local, remote = cli("runs", "--azure", "--runs-dir", str(tmp_path / "runs")).out.splitlines()
    assert ("a.py" in local, remote.startswith(job)) == (True, True)
    assert "jobs" not in cli("runs", "--runs-dir", str(tmp_path / "runs"), "--json").json


def test_no_such_job(ready: StandIn, cli: Cli) -> None:
    done = cli("runs", "show", "--azure", "nothing_like_it")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: the workspace lab has no job 'nothing_like_it'.")
    assert cli("runs", "show", "--azure", "latest").code == 2
    for option, what in (("--workspace", "workspaces/other'"), ("--subscription", "subscription 'other'")):
        elsewhere = cli("runs", "cancel", "nothing_like_it", option, "other")
        assert (elsewhere.code, what in elsewhere.err) == (2, True), elsewhere.err
    refused = cli("runs", "remove", "--azure", "nothing_like_it")
    assert (refused.code, "Archive it in Studio" in refused.err) == (2, True)

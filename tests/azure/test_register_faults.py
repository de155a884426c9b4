"""Refusals, throttling, a service that is down, connections that are lost: one message, and a repeat mends it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.ai.ml.exceptions import AssetException
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.storage.blob import ExponentialRetry

from allranks.azure import retry
from allranks.azure.retry import LONGEST_BACKOFF, backoff_seconds
from allranks.library import VERSION
from allranks.local import snapshot
from allranks.spec import read_component
from tests.azure.registering import copy_checkout, properties, sent
from tests.azure.stand_in.fixture import ROOT, StandIn
from tests.azure.submitting import Cli, Clock
from tests.waiting import wait_for

REGISTER = ("register", "compare_models", "--workspace")
IN_REGISTRY = ("register", "compare_models", "--registry", "shared")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a service that is down."""
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.0)


def test_a_call_is_repeated_until_the_time_for_it_is_over(clock: Clock) -> None:
    began, said = [], []

    def attempt() -> None:
        began.append(clock())
        raise ServiceRequestError("no route")

    with pytest.raises(ServiceRequestError):
        retry.call_with_retry(attempt, said.append)
    assert began == [0, 2, 6, 14, 30, 62, 122, 182, 242]
    assert began[-1] + LONGEST_BACKOFF > retry.RETRY_SECONDS
    assert said[0] == "the connection was lost; trying again in 2 s"
    assert len(said) == len(began) - 1


def test_a_registry_without_rights(cli: Cli, stand_in: StandIn) -> None:
    stand_in.fault("PUT .*/registries/shared/", 403)
    done = cli(*IN_REGISTRY)
    assert (done.code, done.out) == (2, "")
    assert "you have no right to do this in the registry shared (403)" in done.err
    assert "AzureML Registry User" in done.err
    assert "0 of 2 were published" in done.err
    assert done.err.count("error:") == 1
    assert "Traceback" not in done.err
    stand_in.no_faults()
    assert cli(*IN_REGISTRY).code == 0


def test_throttling_for_a_while_is_waited_out(cli: Cli, stand_in: StandIn) -> None:
    stand_in.fault("PUT .*/components/", 429, times=5, retry_after=1)
    stand_in.fault("POST .*/startPendingUpload", 429, times=1)  # the SDK does not repeat a POST
    done = cli(*REGISTER)
    assert done.code == 0
    assert "2 published" in done.out
    assert "the service asks for patience (429); trying again in 2 s" in done.err
    assert "error" not in done.err
    assert stand_in.state["workspace"]["components"]["compare_models"].keys() == {VERSION}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("status", "said"), [(429, "throttles requests (429)"), (503, "Azure failed (503)")])
def test_a_service_that_stays_busy_is_given_up(cli: Cli, stand_in: StandIn, status: int, said: str) -> None:
    stand_in.fault("PUT .*/components/", status, retry_after=1)
    done = cli(*REGISTER)
    assert done.code == 1
    assert said in done.err
    assert "1 of 2 were published" in done.err
    assert "Give the same command again" in done.err
    assert "Traceback" not in done.err
    stand_in.no_faults()
    stand_in.forget_log()
    assert cli(*REGISTER).code == 0
    assert sent(stand_in.log) == ["components/compare_models"]


def test_a_build_context_of_which_half_arrived_is_sent_anew(cli: Cli, stand_in: StandIn) -> None:
    """Without the first file the SDK takes the upload for a new one, and meets the files that are there."""
    stand_in.fault("PUT .*LocalUpload.*Dockerfile", 403)
    assert cli(*REGISTER).code == 2
    there = [path for path in stand_in.state["blobs"] if "LocalUpload" in path]
    assert there
    assert not [path for path in there if path.endswith("Dockerfile")]
    stand_in.no_faults()
    done = cli(*REGISTER)
    assert done.code == 0, done.err
    assert "a part of the files is there already" in done.err
    blobs = stand_in.state["blobs"]
    assert {path.rpartition("/")[2] for path in blobs if "LocalUpload" in path} == {
        "Dockerfile",
        "lock.txt",
        "requirements.txt",
    }


@pytest.mark.slow
def test_an_upload_that_was_killed_leaves_nothing_wrong(azure_server: StandIn, tmp_path: Path) -> None:
    """From a shell: SIGKILL when a part of the snapshot has arrived, where a busy server makes the client wait."""
    azure_server.reset()
    azure_server.fault("PUT .*codes-.*/shared/", 503, after=2, retry_after=60)
    shutil.copytree(ROOT / "allranks", tmp_path / "allranks", ignore=shutil.ignore_patterns("__pycache__"))
    variables = azure_server.environ(PYTHONPATH=str(copy_checkout(tmp_path)), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "allranks", "register", "check_cluster", "--registry", "shared"]
    settings: dict[str, Any] = {"cwd": tmp_path, "env": variables, "text": True}
    with subprocess.Popen(command, **settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: any(one["status"] == 503 for one in azure_server.log), [process])
        process.send_signal(signal.SIGKILL)
    azure_server.no_faults()
    assert azure_server.state["registry"].get("components", {}).get("check_cluster", {}) == {}
    done = subprocess.run(command, **settings, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1 published, 1 unchanged" in done.stdout
    uploaded = code_of(azure_server, "registry", "check_cluster")
    files = snapshot.snapshot_files(read_component(tmp_path / "components/check_cluster/component.yaml"))
    assert uploaded == {file.path: b"".join(file.chunks()) for file in files}


@pytest.fixture
def hasty_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's storage client waits fifteen seconds and more before it tries again; here it does not."""
    monkeypatch.setattr(ExponentialRetry, "get_backoff_time", lambda *_: 0.05)


@pytest.mark.usefixtures("hasty_storage")
def test_a_server_that_hangs_up_in_the_middle_of_an_upload(cli: Cli, stand_in: StandIn) -> None:
    stand_in.fault("PUT .*codes-.*compare_models.py", 0, times=1)
    done = cli(*REGISTER)
    assert (done.code, done.err) == (0, "")
    assert code_of(stand_in, "workspace", "compare_models").keys() == {"compare_models.py"}


@pytest.mark.usefixtures("hasty_storage", "impatient")
def test_a_server_that_hangs_up_in_the_middle_of_every_upload(cli: Cli, stand_in: StandIn) -> None:
    stand_in.fault("PUT .*codes-.*compare_models.py", 0)
    done = cli(*REGISTER)
    assert done.code == 1
    assert "the connection to Azure broke" in done.err
    assert "1 of 2 were published" in done.err
    assert done.err.count("error:") == 1
    stand_in.no_faults()
    assert cli(*REGISTER).code == 0
    assert code_of(stand_in, "workspace", "compare_models").keys() == {"compare_models.py"}


def code_of(stand_in: StandIn, kind: str, name: str) -> dict[str, bytes]:
    """The files that were uploaded for a published component."""
    store = stand_in.state[kind]
    code = properties(store, "components", name, VERSION)["componentSpec"]["code"].split("/")
    return stand_in.uploaded(properties(store, "codes", code[-3], code[-1])["codeUri"])


def answered(status: int, **headers: str) -> HttpResponseError:
    """The error that an answer becomes."""
    error = HttpResponseError("no")
    error.status_code = status
    error.response = SimpleNamespace(headers={name.replace("_", "-"): value for name, value in headers.items()})  # type: ignore[assignment]
    return error


def wrapped(error: BaseException) -> BaseException:
    """As the SDK hands on what happens during an upload."""
    outer: Any = AssetException("Error with code", "Error", target="Asset", error=error)
    outer.__cause__ = error
    return outer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "number", "expected"),
    [
        (answered(429), 0, 2.0),
        (answered(429), 3, 16.0),
        (answered(503), 30, LONGEST_BACKOFF),
        (answered(429, Retry_After="7"), 0, 7.0),
        (answered(429, Retry_After="nonsense"), 0, 2.0),
        (answered(429, Retry_After="nan"), 0, 2.0),
        (answered(429, Retry_After="-1"), 0, 2.0),
        (answered(429, Retry_After="200"), 0, 200.0),
        (answered(403), 0, None),
        (answered(403, Retry_After="1"), 0, None),
        (answered(409), 0, None),
        (ServiceRequestError("no route"), 1, 4.0),
        (ServiceResponseError("reset"), 0, 2.0),
        (wrapped(ServiceResponseError("reset")), 0, 2.0),
        (wrapped(answered(503)), 0, 2.0),
        (ValueError("ours"), 0, None),
    ],
)
def test_how_long_is_waited(error: Exception, number: int, expected: float | None) -> None:
    assert backoff_seconds(error, number) == expected

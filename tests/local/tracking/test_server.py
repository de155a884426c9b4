"""The tracking server as clients see it, over real connections, and as the engine starts and ends it."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from allranks.local.folders import RunsHome
from allranks.local.tracking.endpoint import TrackingEndpoint
from allranks.local.tracking.jobs import JobRuns
from allranks.local.tracking.reading import read_tracked_run
from tests.waiting import TIMEOUT


class Client:
    """Talks to a server as MLflow's clients do, over one connection."""

    def __init__(self, endpoint: TrackingEndpoint, token: str | None = None) -> None:
        variables = endpoint.variables({})
        self.token = token or variables["MLFLOW_TRACKING_TOKEN"]
        self.connection = http.client.HTTPConnection(
            variables["MLFLOW_TRACKING_URI"].removeprefix("http://"), timeout=TIMEOUT
        )

    def ask(self, method: str, route: str, body: bytes | None = None) -> tuple[int, Any]:
        path = route if route.startswith("/") else f"/api/2.0/mlflow/{route}"
        self.connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if "json" in str(answer.getheader("Content-Type")) else text

    def post(self, route: str, **document: object) -> Any:
        status, answer = self.ask("POST", route, json.dumps(document).encode())
        assert status == 200, answer
        return answer

    def get(self, route: str, **query: object) -> Any:
        status, answer = self.ask("GET", f"{route}?{urlencode(query)}")
        assert status == 200, answer
        return answer


@pytest.fixture
def home(tmp_path: Path) -> RunsHome:
    home = RunsHome(tmp_path / "home")
    home.prepare()
    return home


@pytest.fixture
def endpoint(home: RunsHome, tmp_path: Path) -> Iterator[TrackingEndpoint]:
    found = TrackingEndpoint(home, tmp_path / "tracking.txt")
    found.attend()  # as after the first connection
    yield found
    found.close()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingEndpoint]:
    """An endpoint that many tests ask: it has the run r-train, and two others in an experiment that is searched."""
    folder = tmp_path_factory.mktemp("standing")
    home = RunsHome(folder / "home")
    home.prepare()
    begun(home)
    found = TrackingEndpoint(home, folder / "tracking.txt")
    found.attend()
    yield found
    found.close()


@pytest.fixture(scope="module")
def experiment(standing: TrackingEndpoint) -> str:
    client = Client(standing)
    experiment = client.post("experiments/create", name="e")["experiment_id"]
    for name, value in (("a", 1), ("b", 2)):
        run = client.post("runs/create", experiment_id=experiment, run_name=name)["run"]["info"]["run_id"]
        client.post("runs/log-metric", run_id=run, key="m", value=value)
    client.post("runs/log-parameter", run_id=run, key="lr", value="0.1")
    client.post("runs/set-tag", run_id=run, key="note", value="it's (so), AND")
    return str(experiment)


def begun(home: RunsHome) -> tuple[str, str]:
    jobs = JobRuns(home, "r", "digits", "p")
    jobs.begin()
    return jobs.begin_step("train"), jobs.experiment_id


def test_what_a_client_logs_is_what_it_reads_back(endpoint, home):
    run, experiment = begun(home)
    client = Client(endpoint)
    for step, value in enumerate([3, "NaN", "Infinity", 0.5]):
        client.post("runs/log-metric", run_id=run, key="m", value=value, step=str(step), timestamp=1000 + step)
    client.post("runs/log-parameter", run_id=run, key="lr", value="0.1")
    client.post("runs/log-parameter", run_id=run, key="lr", value="0.1")
    client.post("runs/set-tag", run_id=run, key="t", value="x")
    data = client.get("runs/get", run_id=run)["run"]["data"]
    assert [(one["key"], one["value"], one["step"]) for one in data["metrics"]] == [("m", 0.5, 3)]
    assert data["params"] == [{"key": "lr", "value": "0.1"}]
    history = client.get("metrics/get-history", run_id=run, metric_key="m")["metrics"]
    assert [point["value"] for point in history] == [3, "NaN", "Infinity", 0.5]
    page = client.get("metrics/get-history", run_id=run, metric_key="m", max_results=3)
    assert (
        len(
            client.get("metrics/get-history", run_id=run, metric_key="m", page_token=page["next_page_token"])["metrics"]
        )
        == 1
    )
    wrong = json.dumps({"run_id": run, "params": [{"key": "new", "value": "1"}, {"key": "lr", "value": "2"}]}).encode()
    status, answer = client.ask("POST", "runs/log-batch", wrong)
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert answer["message"].startswith("Changing param values is not allowed. Param with key='lr' was already logged")
    assert len(client.get("runs/get", run_id=run)["run"]["data"]["params"]) == 1, "all of a batch or nothing"
    client.post("runs/update", run_id=run, status="FINISHED")
    assert client.get("runs/get", run_id=run)["run"]["info"]["status"] == "RUNNING", "the engine says when it ends"
    own = client.post("runs/create", experiment_id=experiment)["run"]["info"]["run_id"]
    assert client.post("runs/update", run_id=own, status="FAILED", end_time=5)["run_info"]["status"] == "FAILED"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("metrics.m > 1 AND params.lr = '0.1'", ["b"]),
        ("metrics.`m` <= 1", ["a"]),
        ("tags.\"mlflow.runName\" LIKE '%' and attributes.status = 'RUNNING'", ["b", "a"]),
        ("run_name ILIKE 'A%'", ["a"]),
        ("attributes.run_name IN ('a', 'x')", ["a"]),
        ("params.lr IS NULL", ["a"]),
        ("tags.note = 'it''s (so), AND'", ["b"]),
    ],
)
def test_search(standing, experiment, wanted, found):
    request = {"experiment_ids": [experiment], "filter": wanted, "order_by": ["metrics.m DESC"]}
    runs = Client(standing).post("runs/search", **request)["runs"]
    assert [one["info"]["run_name"] for one in runs] == found


@pytest.mark.parametrize("wanted", ["metrics.m >", "frobs.x = '1'", "metrics.m = 1 OR 2", "x ? 1", "params.a = 1"])
def test_a_filter_that_cannot_be_read_is_refused(standing, wanted):
    status, answer = Client(standing).ask("POST", "runs/search", json.dumps({"filter": wanted}).encode())
    assert (status, answer["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


PROMPT = b'{"name": "p", "tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}]}'


@pytest.mark.parametrize(
    ("method", "route", "body", "status", "code"),
    [
        ("GET", "runs/get?run_id=nobody", None, 404, "RESOURCE_DOES_NOT_EXIST"),
        ("POST", "/api/3.0/mlflow/traces", b"{}", 404, "ENDPOINT_NOT_FOUND"),
        ("POST", "webhooks", b"{}", 404, "ENDPOINT_NOT_FOUND"),
        ("POST", "registered-models/create", PROMPT, 404, "ENDPOINT_NOT_FOUND"),
        ("GET", "registered-models/search?filter=tags.a%3D%27b%27", None, 400, "INVALID_PARAMETER_VALUE"),
        ("GET", "model-versions/search?filter=run_id%3D%27b%27", None, 400, "INVALID_PARAMETER_VALUE"),
        ("GET", "/nothing/of/ours", None, 404, "ENDPOINT_NOT_FOUND"),
        ("POST", "runs/create", b"{not json", 400, "BAD_REQUEST"),
        ("POST", "runs/create", b"[" * 100_000, 400, "BAD_REQUEST"),
        ("POST", "runs/log-metric", b'{"run_id": {"a": 1}}', 400, "INVALID_PARAMETER_VALUE"),
        ("POST", "runs/create", b" " * (17 * 2**20), 400, "BAD_REQUEST"),
        ("GET", "artifacts/list?run_id=r-train&path=../../..", None, 400, "INVALID_PARAMETER_VALUE"),
    ],
)
def test_what_cannot_be_answered_is_an_error_of_mlflow(standing, method, route, body, status, code):
    client = Client(standing)
    try:
        found, answer = client.ask(method, route, body)
    except (BrokenPipeError, ConnectionResetError):  # it does not read a body that is too large
        assert len(body) > 2**20
    else:
        assert (found, answer["error_code"]) == (status, code)
    assert Client(standing).ask("GET", "/health") == (200, b"OK")


def test_who_has_no_token_learns_nothing(standing):
    status, answer = Client(standing, "guessed").ask("GET", "runs/get?run_id=r-train")
    assert (status, answer["error_code"]) == (401, "UNAUTHENTICATED")
    assert "r-train" not in json.dumps(answer)


def test_a_server_that_was_killed_is_started_by_the_next_connection(endpoint, home):
    run, _ = begun(home)
    Client(endpoint).post("runs/log-metric", run_id=run, key="m", value=1)
    (pid,) = endpoint.pids
    os.kill(pid, signal.SIGKILL)
    assert select.select([endpoint.descriptor], [], [])[0]
    endpoint.settle()
    endpoint.attend()
    client = Client(endpoint)
    client.connection.connect()  # waits in the queue of the engine's socket
    endpoint.attend()
    client.post("runs/log-metric", run_id=run, key="m", value=2)
    endpoint.settle()
    assert [point.value for point in read_tracked_run(home, run).metrics["m"]] == [1, 2]


def test_what_a_rank_sent_before_it_was_killed_is_stored_when_it_is_looked_at(home, tmp_path):
    run, _ = begun(home)
    endpoint = TrackingEndpoint(home, tmp_path / "tracking.txt")
    client = Client(endpoint)
    body = json.dumps({"run_id": run, "key": "m", "value": 7}).encode()
    head = {"Authorization": f"Bearer {client.token}"}
    client.connection.request("POST", "/api/2.0/mlflow/runs/log-metric", body, head)
    client.connection.close()  # nobody waits for the answer, and no server has been started yet
    endpoint.settle()
    assert [point.value for point in read_tracked_run(home, run).metrics["m"]] == [7]
    endpoint.close()


ENGINE = """
import signal, sys
from pathlib import Path
from allranks.local.folders import RunsHome
from allranks.local.tracking.endpoint import TrackingEndpoint
endpoint = TrackingEndpoint(RunsHome(Path(sys.argv[1])), Path(sys.argv[1]) / "log.txt")
endpoint.attend()
print(*endpoint.pids, flush=True)
signal.pause()
"""


def test_the_server_ends_with_an_engine_that_is_killed(home):
    with subprocess.Popen([sys.executable, "-c", ENGINE, home.path], stdout=subprocess.PIPE, text=True) as engine:
        server = os.pidfd_open(int(engine.stdout.readline()))
        engine.kill()
        assert select.select([server], [], [])[0]
        os.close(server)


REGISTRY = (
    ("POST", "registered-models/create", {"name": "iris"}),
    ("POST", "model-versions/create", {"name": "iris", "source": "file:///model"}),
    ("POST", "registered-models/alias", {"name": "iris", "alias": "best", "version": "1"}),
    ("POST", "model-versions/transition-stage", {"name": "iris", "version": "1", "stage": "production"}),
    ("PATCH", "model-versions/update", {"name": "iris", "version": "1", "description": "good"}),
)


def test_registry_of_models(endpoint):
    client = Client(endpoint)
    for method, route, document in REGISTRY:
        status, answer = client.ask(method, route, json.dumps(document).encode())
        assert status == 200, answer
    version = client.get("registered-models/alias", name="iris", alias="best")["model_version"]
    assert (version["version"], version["current_stage"], version["aliases"]) == ("1", "Production", ["best"])
    no_prompt = "tag.`mlflow.prompt.is_prompt` != 'true'"  # added by the client of MLflow 3
    for wanted, names in (
        ("", ["iris"]),
        (no_prompt, ["iris"]),
        (f"name LIKE 'ir%' AND {no_prompt}", ["iris"]),
        ("name='it''s'", []),
    ):
        found = client.get("registered-models/search", filter=wanted)
        assert [model["name"] for model in found["registered_models"]] == names
    assert len(client.get("model-versions/search", filter="name = 'iris'")["model_versions"]) == 1


@pytest.mark.parametrize(
    ("method", "route"),
    [
        ("POST", "logged-models"),
        ("POST", "logged-models/search"),
        ("PATCH", "logged-models/m-1"),
        ("POST", "runs/outputs"),
    ],
)
def test_logged_models_are_refused_as_by_azure_ml(standing, method, route):
    status, answer = Client(standing).ask(method, route, b"{}")
    assert (status, answer["error_code"]) == (404, "ENDPOINT_NOT_FOUND")
    assert "Azure ML's tracking server has no logged models (MLflow 3)" in answer["message"]
    assert "Pin mlflow<3" in answer["message"]


def test_properties_that_mldesigner_writes_are_kept_as_tags(endpoint, home):
    run, experiment = begun(home)
    body = json.dumps({"runId": run, "properties": {"azureml.pipeline.control": '{"output": true}', "n": 1}}).encode()
    assert Client(endpoint).ask("PATCH", f"/experimentids/{experiment}/runs/{run}", body)[0] == 200
    tracked = read_tracked_run(home, run)
    assert tracked is not None
    assert {name: tracked.tags[name] for name in ("azureml.pipeline.control", "n")} == {
        "azureml.pipeline.control": '{"output": true}',
        "n": "1",
    }


def test_a_proxy_is_not_asked_for_loopback(standing):
    variables = standing.variables({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "intern.example"})
    assert variables["NO_PROXY"] == variables["no_proxy"] == "intern.example,127.0.0.1"
    assert "NO_PROXY" not in standing.variables({})


def test_a_server_that_ends_before_it_reads_its_token_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(pid: int) -> int:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return opening(pid)

    opening = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", opened)
    monkeypatch.setattr("allranks.local.tracking.endpoint.child_command", lambda *_: ["false"])
    home = RunsHome(tmp_path)
    home.prepare()
    endpoint = TrackingEndpoint(home, tmp_path / "tracking.txt")
    warnings: list[str] = []
    endpoint.warn = warnings.append
    for _ in range(6):  # each server starts, and is found dead
        endpoint.attend()
    endpoint.close()
    assert len(warnings) == 1
    assert "MLflow calls of this run fail" in warnings[0]

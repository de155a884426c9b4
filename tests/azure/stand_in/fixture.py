"""Fixtures: one server for the session, empty for every test, and this process's variables that lead to it."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import TIMEOUT

ROOT = Path(__file__).parents[3]
VARIABLES = ("AZURE_", "ARM_", "IDENTITY_", "MSI_", "AZUREML_", "REGISTRY_DISCOVERY_")


@dataclass(frozen=True)
class StandIn:
    """The server, as tests see it.

    Attributes:
        environment: the variables that lead a client to it, and nothing else.
    """

    environment: Mapping[str, str]

    @property
    def base(self) -> str:
        return self.environment["REGISTRY_DISCOVERY_ENDPOINT_URL"].rstrip("/")

    def environ(self, **extra: str) -> dict[str, str]:
        """This process's variables without any of Azure's, and those of the stand-in: for a subprocess."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
        return {**kept, **self.environment, **extra}

    def fault(self, match: str, status: int, **settings: Any) -> None:
        """Make requests fail: see ``faults.Fault`` for times, after, retry_after, message; status 0 hangs up."""
        self._call("POST", "faults", {"match": match, "status": status, **settings})

    def no_faults(self) -> None:
        self._call("DELETE", "faults")

    def script(self, end: str, **settings: str) -> None:
        """How jobs that are sent from now on end: see ``lifecycle``."""
        self._call("POST", "script", {"end": end, **settings})

    def put(self, assets: Sequence[tuple[str, str, str, Mapping[str, Any]]]) -> None:
        """Let the workspace have assets, (kind, name, version, properties), without any check."""
        self._call("POST", "assets", [list(asset) for asset in assets])

    def add_cluster(self, name: str, size: str, nodes: int = 2, priority: str = "Dedicated") -> None:
        """Let the workspace have a cluster."""
        limits = {"minNodeCount": 0, "maxNodeCount": nodes}
        self._call("POST", "computes", {name: {"vmSize": size, "vmPriority": priority, "scaleSettings": limits}})

    def reset(self) -> None:
        self._call("POST", "reset")

    def forget_log(self) -> None:
        self._call("DELETE", "log")

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every request since the start of the test: method, path, query, body (or its length), status (0: hung up)."""
        found: list[dict[str, Any]] = self._call("GET", "log")
        return found

    def requests(self, method: str, part: str) -> list[dict[str, Any]]:
        """The requests of a method whose path has ``part`` in it."""
        return [one for one in self.log if one["method"] == method and part in one["path"]]

    @property
    def state(self) -> dict[str, Any]:
        """Everything: workspace and registry (kind to name to version), blobs (latin-1), computes, jobs, runs."""
        found: dict[str, Any] = self._call("GET", "state")
        return found

    def uploaded(self, code_uri: str) -> dict[str, bytes]:
        """The files of a code asset, by their path in the snapshot."""
        prefix = code_uri.partition(".blob.stand-in/")[2].rstrip("/") + "/"
        blobs = self.state["blobs"].items()
        return {path.removeprefix(prefix): text.encode("latin-1") for path, text in blobs if path.startswith(prefix)}

    def _call(self, method: str, what: str, document: Any = None) -> Any:
        body = None if document is None else json.dumps(document).encode()
        context = ssl.create_default_context(cafile=self.environment["REQUESTS_CA_BUNDLE"])
        request = urllib.request.Request(f"{self.base}/control/{what}", body, method=method)  # noqa: S310 - https
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """The server process; it ends when its standard input does, so also when the tests are killed."""
    folder = tmp_path_factory.mktemp("stand_in")
    command = [sys.executable, "-m", "tests.azure.stand_in", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE) as process:
        until = time.monotonic() + 30
        while not (folder / "environment.json").is_file():
            assert process.poll() is None, "the stand-in did not start"
            assert time.monotonic() < until, "the stand-in did not start in time"
            time.sleep(0.02)
        yield StandIn(json.loads((folder / "environment.json").read_text()))
        process.communicate()


@pytest.fixture
def stand_in(azure_server: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The server, empty, and the variables of this process set so that a client here finds it."""
    azure_server.reset()
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        monkeypatch.delenv(name)
    for name, value in azure_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AZUREML_CURRENT_CLOUD", "unset")  # the SDK writes it; so it is put back afterwards
    monkeypatch.delenv("AZUREML_CURRENT_CLOUD")
    return azure_server

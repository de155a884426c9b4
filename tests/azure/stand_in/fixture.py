"""The stand-in as tests use it: a server in a thread of pytest, and the variables that lead a client there."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.azure.stand_in import certificates, workspace
from tests.azure.stand_in.faults import Fault
from tests.azure.stand_in.identity import IDENTITY_HEADER
from tests.azure.stand_in.server import Server
from tests.azure.stand_in.state import RESOURCE_GROUP, SUBSCRIPTION, WORKSPACE, State

ROOT = Path(__file__).parents[3]
VARIABLES = ("AZURE_", "ARM_", "IDENTITY_", "MSI_", "AZUREML_", "REGISTRY_DISCOVERY_")


@dataclass(frozen=True)
class StandIn:
    """The server, as tests see it.

    Attributes:
        environment: the variables that lead a client to the server, and nothing else.
        memory: all that the server remembers.
    """

    environment: Mapping[str, str]
    memory: State

    def environ(self, **extra: str) -> dict[str, str]:
        """Return this process's variables without any of Azure's, and those of the stand-in: for a subprocess."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
        return {**kept, **self.environment, **extra}

    def fault(self, match: str, status: int, **settings: Any) -> None:
        """Make requests fail: see ``faults.Fault`` for times, after, retry_after, message; status 0 hangs up."""
        self.memory.faults.append(Fault(match, status, **settings))

    def no_faults(self) -> None:
        self.memory.faults.clear()

    def script(self, end: str, **settings: str) -> None:
        """Set how jobs end that are sent from now on: see ``lifecycle``."""
        self.memory.script = {"end": end, **settings}

    def put(self, assets: Sequence[tuple[str, str, str, Mapping[str, Any]]]) -> None:
        """Let the workspace have assets, (kind, name, version, properties), without any check."""
        store = self.memory.workspace
        for kind, name, version, properties in assets:
            identity = {"id": f"{store.id}/{kind}/{name}/versions/{version}", "name": version}
            store.versions(kind, name)[version] = identity | {"properties": properties}

    def add_cluster(self, name: str, size: str, nodes: int = 2, priority: str = "Dedicated") -> None:
        """Let the workspace have a cluster."""
        limits = {"minNodeCount": 0, "maxNodeCount": nodes}
        workspace.add_compute(self.memory, name, {"vmSize": size, "vmPriority": priority, "scaleSettings": limits})

    def reset(self) -> None:
        workspace.reset(self.memory)

    def forget_log(self) -> None:
        self.memory.log.clear()

    @property
    def log(self) -> list[dict[str, Any]]:
        """Every request since the start of the test: method, path, query, body (or its length), status (0: hung up)."""
        return list(self.memory.log)

    def requests(self, method: str, part: str) -> list[dict[str, Any]]:
        """The requests of a method whose path has ``part`` in it."""
        return [one for one in self.log if one["method"] == method and part in one["path"]]

    @property
    def state(self) -> dict[str, Any]:
        """Everything: workspace and registry (kind to name to version), blobs (bytes), computes, jobs, runs."""
        blobs = {path: blob.content for path, blob in self.memory.blobs.items()}
        stores = {"workspace": self.memory.workspace.assets, "registry": self.memory.registry.assets}
        others = {name: getattr(self.memory, name) for name in ("computes", "jobs", "runs")}
        return {**stores, "blobs": blobs, **others}

    def uploaded(self, code_uri: str) -> dict[str, bytes]:
        """The files of a code asset, by their path in the snapshot."""
        prefix = code_uri.partition(".blob.stand-in/")[2].rstrip("/") + "/"
        blobs = self.state["blobs"].items()
        return {path.removeprefix(prefix): content for path, content in blobs if path.startswith(prefix)}


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """The server, which listens until the tests end."""
    authority, certificate = certificates.write(tmp_path_factory.mktemp("stand_in"))
    with Server(certificate) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = server.state.base
        environment = {
            "ARM_CLOUD_METADATA_URL": f"{base}/metadata",
            "REQUESTS_CA_BUNDLE": str(authority),
            "IDENTITY_ENDPOINT": f"{base}/identity/token",
            "IDENTITY_HEADER": IDENTITY_HEADER,
            "REGISTRY_DISCOVERY_ENDPOINT_URL": f"{base}/",
            "AZUREML_ARM_SUBSCRIPTION": SUBSCRIPTION,
            "AZUREML_ARM_RESOURCEGROUP": RESOURCE_GROUP,
            "AZUREML_ARM_WORKSPACE_NAME": WORKSPACE,
        }
        yield StandIn(environment, server.state)
        server.shutdown()


@contextmanager
def variables_of(server: StandIn) -> Iterator[None]:
    """Lead clients in this process to the server within the block; the SDK does not wait before it asks again."""
    from azure.core.pipeline.transport import RequestsTransport

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RequestsTransport, "sleep", lambda *_: None)
        for name in [name for name in os.environ if name.startswith(VARIABLES)]:
            patch.delenv(name)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.setenv("AZUREML_CURRENT_CLOUD", "unset")  # the SDK writes it; so it is put back afterwards
        patch.delenv("AZUREML_CURRENT_CLOUD")
        yield


@pytest.fixture
def stand_in(azure_server: StandIn) -> Iterator[StandIn]:
    """The server, empty, for clients in this process."""
    azure_server.reset()
    with variables_of(azure_server):
        yield azure_server

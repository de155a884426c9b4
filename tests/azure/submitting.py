"""What the tests of submitting share: the library's environments in the stand-in, calls of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue, library
from allranks.azure import retry, watch
from allranks.azure.client import connect_workspace, find_workspace
from tests.azure.registering import taken_for_library
from tests.azure.stand_in.fixture import StandIn
from tests.azure.stand_in.state import WORKSPACE_ID
from tests.cli.conftest import Called, cli

__all__ = [
    "Called",
    "Clock",
    "cli",
    "clock",
    "component_of",
    "environments",
    "job_sent",
    "ready",
    "small",
    "workspace_client",
]

Cli = Callable[..., Called]

NESTED = """
type: pipeline
settings: {default_compute: "azureml:cpu-cluster", continue_on_step_failure: false}
inputs: {data: {type: uri_folder, path: "azureml://datastores/workspaceblobstore/paths/x"}}
jobs:
  outer:
    type: pipeline
    component: ./inner.yaml
    inputs: {data: "${{parent.inputs.data}}"}
"""
INNER = """
type: pipeline
name: inner
inputs: {data: {type: uri_folder}}
jobs:
  count:
    type: command
    inputs: {data: "${{parent.inputs.data}}"}
    component:
      type: command
      name: count
      command: ls '${{inputs.data}}'
      environment: {image: "ubuntu:24.04"}
      inputs: {data: {type: uri_folder}}
"""


def workspace_client() -> Any:
    """An unmodified client of the stand-in's workspace."""
    return connect_workspace(find_workspace())


def environments(stand_in: StandIn) -> None:
    """Let the workspace have all environments of the library, as if they had been registered."""
    names = [(f"allranks-{name}", library.VERSION) for name in catalogue.ENVIRONMENTS]
    stand_in.put([("environments", name, version, {"image": "some.test/image"}) for name, version in names])


class Clock:
    """A clock that only `sleep` moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `call_with_retry` in this process, so that no test waits before an attempt."""
    made = Clock()
    monkeypatch.setattr(retry.call_with_retry, "__kwdefaults__", {"clock": made, "sleep": made.sleep})
    return made


@pytest.fixture
def ready(stand_in: StandIn, small_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A workspace with the environments of a small library, whose jobs are looked at without a pause."""
    monkeypatch.setattr(watch, "LONGEST_POLL", 0.0)
    environments(stand_in)
    with taken_for_library(small_library):
        yield stand_in


def job_sent(stand_in: StandIn) -> dict[str, Any]:
    """The properties of the one job that was sent, which the SDK sends again where a busy machine answers late."""
    request, *again = stand_in.requests("PUT", f"{WORKSPACE_ID}/jobs/")
    assert request["status"] == 201
    assert [(one["path"], one["body"]) for one in again] == [(request["path"], request["body"])] * len(again)
    properties: dict[str, Any] = request["body"]["properties"]
    return properties


def component_of(stand_in: StandIn, node: dict[str, Any]) -> dict[str, Any]:
    """The specification of the component that a step names by its id."""
    name, _, version = node["componentId"].partition("/components/")[2].partition("/versions/")
    found: dict[str, Any] = stand_in.state["workspace"]["components"][name][version]["properties"]["componentSpec"]
    return found


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A pipeline whose one step is in a nested pipeline, without files to send."""
    (tmp_path / "inner.yaml").write_text(INNER)
    (tmp_path / "job.yaml").write_text(NESTED)
    return str(tmp_path / "job.yaml")

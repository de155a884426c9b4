"""What the tests of submitting share: the library's environments in the stand-in, calls of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue, library
from allranks.azure import retry, watch
from allranks.azure.client import connect_workspace, find_workspace
from tests.azure.stand_in.fixture import StandIn
from tests.azure.stand_in.state import WORKSPACE_ID
from tests.cli.conftest import Called, cli

__all__ = ["Called", "cli", "component_of", "environments", "job_sent", "ready", "small", "workspace_client"]

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


@pytest.fixture
def ready(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A workspace with the library's environments; nobody waits between two looks at a job, nor long for a service."""
    monkeypatch.setattr(watch, "LONGEST_POLL", 0.0)
    monkeypatch.setattr(retry, "RETRY_SECONDS", 20.0)
    environments(stand_in)
    return stand_in


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

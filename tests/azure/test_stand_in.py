"""The stand-in refuses what the service refuses: otherwise the tests that use it would prove little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from azure.ai.ml import Input, load_component, load_environment
from azure.core.exceptions import HttpResponseError

from allranks import catalogue
from allranks.azure.client import connect_registry
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import workspace_client

DATA = Input(type="uri_folder", path="azureml://datastores/workspaceblobstore/paths/x")


def refusal(attempt: Callable[[], Any]) -> str:
    with pytest.raises(HttpResponseError) as caught:
        attempt()
    assert caught.value.status_code in (400, 404, 409)
    return f"{caught.value.status_code} {caught.value.message}"


def test_published_versions_do_not_change(ready: StandIn) -> None:
    client = workspace_client()
    component = load_component(catalogue.component_files()["train_ddp"])
    client.components.create_or_update(component)
    component.description = "Another one."
    client.components.create_or_update(component)
    assert client.components.get("train_ddp", label="latest").description == "Another one."
    component.command += " --more"
    said = refusal(lambda: client.components.create_or_update(component))
    assert said.startswith("409 (UserError) component train_ddp with version")


def test_a_registry_takes_no_unnamed_environment(stand_in: StandIn) -> None:
    environment = load_environment(catalogue.environment_files()["pytorch"])
    environment._is_anonymous = True
    said = refusal(lambda: connect_registry("shared").environments.create_or_update(environment))
    assert "Anonymous environments cannot be created in a registry" in said

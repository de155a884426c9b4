"""The stand-in refuses what the service refuses: otherwise the tests that use it would prove little."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from azure.ai.ml import Input, load_component, load_environment, load_job
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


def test_an_environment_has_to_be_there(stand_in: StandIn) -> None:
    component = load_component(catalogue.component_files()["train_ddp"])
    said = refusal(lambda: workspace_client().components.create_or_update(component))
    assert said.startswith("404 (UserError) Environment ")


def test_a_registry_takes_no_unnamed_environment(stand_in: StandIn) -> None:
    environment = load_environment(catalogue.environment_files()["pytorch"])
    environment._is_anonymous = True
    said = refusal(lambda: connect_registry("shared").environments.create_or_update(environment))
    assert "Anonymous environments cannot be created in a registry" in said


def job(change: Callable[[Any], None]) -> Any:
    found = load_job(catalogue.pipeline_files()["image_classification"])
    change(found)
    return found


def unknown_environment(found: Any) -> None:
    found.jobs["train"].component.environment = "azureml:nothing:1"


def out_of_range(found: Any) -> None:
    found.inputs.epochs = 0


def not_among_the_choices(found: Any) -> None:
    found.jobs["train"].inputs.optimizer = "momentum"


def another_type(found: Any) -> None:
    found.inputs.epochs = "many"


def ports_that_do_not_fit(found: Any) -> None:
    found.jobs["prepare"].component.outputs["data"].type = "uri_file"


def no_such_component(found: Any) -> None:
    found.jobs["train"]._component = "azureml:train_ddp:9.9.9"


def test_jobs_that_cannot_run(ready: StandIn) -> None:
    client = workspace_client()
    said = {
        unknown_environment: "nothing/versions/1 was not found",
        out_of_range: "0 is not between 1.0 and None",
        not_among_the_choices: "'momentum' is none of",
        another_type: "'many' is not of type integer",
        ports_that_do_not_fit: "uri_file does not fit uri_folder",
        no_such_component: "train_ddp/versions/9.9.9 was not found",
    }
    for change, words in said.items():
        assert words in refusal(partial(client.jobs.create_or_update, job(change)))
    assert not ready.state["jobs"]


def test_what_a_job_wrote_can_be_downloaded_and_streamed(
    ready: StandIn, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.ai.ml.operations._run_history_constants import RunHistoryConstants

    monkeypatch.setattr(RunHistoryConstants, "_WAIT_COMPLETION_POLLING_INTERVAL_MIN", 0)
    monkeypatch.setattr(RunHistoryConstants, "_WAIT_COMPLETION_POLLING_INTERVAL_MAX", 0)
    client = workspace_client()
    sent = client.jobs.create_or_update(job(lambda _found: None))
    client.jobs.stream(sent.name)
    assert f"RunId: {sent.name}" in capsys.readouterr().out
    train = next(step for step in client.jobs.list(parent_job_name=sent.name) if step.display_name == "train")
    client.jobs.download(train.name, download_path=tmp_path)
    assert (tmp_path / "artifacts/user_logs/std_log_process_0.txt").read_text() == "starting\ndone\n"

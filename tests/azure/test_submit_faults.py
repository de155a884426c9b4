"""What can go wrong on the way to Azure: one message each, an exit code, nothing submitted twice or by half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from requests import ReadTimeout
from requests.adapters import HTTPAdapter

from allranks.azure import client, retry
from allranks.azure.client import Workspace, find_workspace
from allranks.errors import UsageError
from tests.azure.stand_in.fixture import StandIn
from tests.azure.submitting import Cli

JOBS = "PUT .*/jobs/"


def refused(cli: Cli, stand_in: StandIn, *arguments: str, code: int = 2) -> str:
    """The message of a submission that fails; it is one error with one hint at most, and no job."""
    done = cli("submit", *arguments)
    assert done.code == code, done
    sending = f"sending {Path(arguments[0]).stem} to the workspace lab of resource group research, as "
    assert done.out == "" or done.out.startswith(sending) or "other" in arguments
    assert done.out.count("\n") <= 1
    assert f"\n{done.err}".count("\nerror: ") == 1
    assert "Traceback" not in done.err
    assert not stand_in.state["jobs"]
    return done.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--workspace", "'Microsoft.MachineLearningServices/workspaces/other' under resource group 'research'"),
        ("--resource-group", "Resource group 'other' could not be found"),
        ("--subscription", "subscription 'other' could not be found"),
    ],
)
def test_a_wrong_workspace(stand_in: StandIn, cli: Cli, option: str, said: str) -> None:
    assert said in refused(cli, stand_in, "image_classification", option, "other")


def test_no_credentials(stand_in: StandIn, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("IDENTITY_ENDPOINT")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # no search for a metadata service
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refused(cli, stand_in, "image_classification")
    assert "no credentials for Azure were found" in said
    assert "az login" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "did not accept the credentials (401): The access token expiry UTC time"),
        (403, "you have no right to do this in the workspace lab"),
    ],
)
def test_a_refusal_of_the_caller(stand_in: StandIn, cli: Cli, status: int, said: str) -> None:
    stand_in.fault("/computes", status)
    assert said in refused(cli, stand_in, "image_classification")


def test_an_unknown_compute(stand_in: StandIn, cli: Cli) -> None:
    said = refused(cli, stand_in, "image_classification", "--compute", "gpu-cluser")
    assert "no compute 'gpu-cluser' in the workspace lab" in said
    assert "There is cpu-cluster, gpu-cluster, serverless." in said


def test_a_low_priority_compute(ready: StandIn, cli: Cli) -> None:
    ready.add_cluster("cheap", "Standard_NC24ads_A100_v4", priority="LowPriority")
    said = refused(cli, ready, "image_classification", "--compute", "cheap")
    assert "the compute 'cheap': Azure ML retired low-priority nodes on 2026-03-31" in said
    assert "job_tier: spot" in said


def test_environments_that_are_not_registered(stand_in: StandIn, cli: Cli) -> None:
    said = refused(cli, stand_in, "image_classification")
    assert "environment allranks-evaluate:" in said
    assert "environment allranks-pytorch:" in said
    assert "hint: Register the library: allranks register" in said


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (("--registered",), "allranks register --workspace"),
        (("--registry", "shared"), "allranks register --registry shared"),
    ],
)
def test_components_that_are_not_registered(ready: StandIn, cli: Cli, options: Any, command: str) -> None:
    said = refused(cli, ready, "image_classification", *options)
    assert "component train_ddp:" in said
    assert command in said


def test_an_unknown_registry(ready: StandIn, cli: Cli) -> None:
    assert "Registry other was not found" in refused(cli, ready, "image_classification", "--registry", "other")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("image_classification", "epochs=0"), "0 is below the minimum of 1"),
        (("image_classification", "epoch=3"), "did you mean 'epochs'"),
        (("image_classification", "--scale", "train=2"), "nor STEP=NODESxPROCESSES"),
        (("image_classification", "--scale", "trian=2x2"), "did you mean 'train'"),
        (("image_clasification",), "did you mean 'image_classification'"),
        (("train_ddp",), "data"),
        (("image_classification", "--dry-run", "--watch"), "--dry-run"),
    ],
)
def test_what_a_user_gets_wrong_is_said_before_azure_is_asked(
    stand_in: StandIn, cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(cli, stand_in, *arguments)
    assert stand_in.log == []


def test_a_pipeline_without_compute(stand_in: StandIn, cli: Cli, tmp_path: Path) -> None:
    step = {"command": "true", "name": "one", "type": "command", "environment": {"image": "ubuntu:24.04"}}
    document = {"type": "pipeline", "jobs": {"one": {"type": "command", "component": step}}}
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    said = refused(cli, stand_in, str(tmp_path / "job.yaml"))
    assert "jobs.one: has no compute" in said
    assert cli("submit", str(tmp_path / "job.yaml"), "--compute", "serverless").code == 0


@pytest.mark.slow
def test_a_job_that_may_have_arrived_is_named(
    ready: StandIn, cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "RETRY_SECONDS", 0.0)
    ready.fault("answer of " + JOBS, 0)
    done = cli("submit", small)
    (job,) = ready.state["jobs"]
    assert done.code == 1
    assert f"hint: Whether {job} has arrived says: allranks runs show --azure {job}." in done.err
    assert done.out.rstrip().endswith(f", as {job}")
    ready.no_faults()
    assert cli("runs", "show", "--azure", job).code == 0


@pytest.mark.slow
def test_a_job_that_was_sent_needs_no_right_to_be_looked_at(ready: StandIn, cli: Cli, small: str) -> None:
    ready.fault("GET .*/jobs/", 403)
    done = cli("submit", small, "--json")
    assert done.code == 0, done.err
    assert list(ready.state["jobs"]) == [done.json["job"]]
    assert done.json["studio"]


def test_an_answer_that_does_not_come_is_asked_for_again(
    ready: StandIn, cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After our own time-out; the SDK's would be five minutes."""
    send, given_up = HTTPAdapter.send, []

    def silent_once(self: HTTPAdapter, request: Any, *args: Any, timeout: Any, **settings: Any) -> Any:
        if request.method == "PUT" and "/jobs/" in request.url and not given_up:
            given_up.append(timeout)
            raise ReadTimeout
        return send(self, request, *args, timeout=timeout, **settings)

    monkeypatch.setattr(HTTPAdapter, "send", silent_once)
    assert cli("submit", small).code == 0
    assert given_up == [(client.CONNECTION_TIMEOUT, client.READ_TIMEOUT)]
    assert len(ready.state["jobs"]) == 1


def test_credentials_that_are_refused_are_told_in_azures_words(ready: StandIn, cli: Cli, small: str) -> None:
    ready.fault("/identity", 400)
    said = refused(cli, ready, small)
    assert "Azure gave no token: ManagedIdentityCredential: " in said
    assert "Token request error" in said
    assert "AzureCliCredential" not in said


@pytest.mark.slow
def test_an_sdk_that_has_changed_inside_is_named(
    ready: StandIn, cli: Cli, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from azure.ai.ml.entities import PipelineJob

    monkeypatch.delattr(next(one for one in PipelineJob.__mro__ if "_build_inputs" in vars(one)), "_build_inputs")
    said = refused(cli, ready, small)
    assert "azure-ai-ml 1." in said
    assert "has no attribute '_build_inputs'" in said
    assert 'pip install "azure-ai-ml>=1.35,<1.36"' in said


@pytest.mark.slow
def test_a_job_of_the_same_name_is_not_taken_for_the_one_that_is_sent(ready: StandIn, cli: Cli, small: str) -> None:
    document = Path(small).read_text()
    Path(small).write_text(f"name: nightly{document}")
    assert cli("submit", small, "--json").json["job"] == "nightly"
    Path(small).write_text(f"name: nightly\ndescription: another{document}")
    again = cli("submit", small)
    assert (again.code, "there is a job 'nightly' already" in again.err) == (2, True), again.out


@pytest.mark.slow
def test_an_answer_that_is_lost_submits_nothing_twice(ready: StandIn, cli: Cli, small: str) -> None:
    ready.fault("answer of " + JOBS, 0, times=1)
    done = cli("submit", small, "--json")
    assert done.code == 0, done.err
    assert list(ready.state["jobs"]) == [done.json["job"]]


def test_a_refusal_of_the_service_is_told_in_its_words(ready: StandIn, cli: Cli, small: str) -> None:
    ready.fault(JOBS, 400, message="Quota exceeded. See https://x.test/?sv=1&sig=c2VjcmV0&se=2")
    said = refused(cli, ready, small)
    assert "Azure refused (400): Quota exceeded. See https://x.test/?sv=1&sig=***&se=2" in said


VARIABLES = {
    "AZUREML_ARM_SUBSCRIPTION": "s",
    "AZUREML_ARM_RESOURCEGROUP": "g",
    "AZUREML_ARM_WORKSPACE_NAME": "w",
}


def test_options_win_over_variables_over_config_json(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    config = {"subscription_id": "s2", "resource_group": "g2", "workspace_name": "w2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (inner / "config.json").write_text('{"learning_rate": 1}')
    assert find_workspace(folder=inner, environ={}) == Workspace("s2", "g2", "w2")
    assert find_workspace(folder=inner, environ=VARIABLES) == Workspace("s", "g", "w")
    assert find_workspace(None, None, "other", folder=inner, environ=VARIABLES) == Workspace("s", "g", "other")
    (tmp_path / "a" / ".azureml").mkdir()
    (tmp_path / "a" / ".azureml" / "config.json").write_text(json.dumps(config | {"workspace_name": "w3"}))
    assert find_workspace(folder=inner, environ={}).name == "w3"


@pytest.mark.parametrize(
    ("environ", "config", "said"),
    [
        ({}, "", "there is no --subscription, no --resource-group, no --workspace"),
        ({"AZUREML_ARM_SUBSCRIPTION": "s"}, "", "AZUREML_ARM_SUBSCRIPTION is set, but AZUREML_ARM_RESOURCEGROUP"),
        ({}, '{"subscription_id": "s", "resource_group": "g"}', "there is no --workspace"),
        ({}, "{", "config.json cannot be read"),
    ],
)
def test_a_workspace_that_is_not_said_whole(tmp_path: Path, environ: dict[str, str], config: str, said: str) -> None:
    if config:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(UsageError, match=said):
        find_workspace(folder=tmp_path, environ=environ)

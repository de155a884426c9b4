"""``allranks.run`` and ``allranks.submit``, and pipelines whose components are registered."""

from pathlib import Path
from typing import Any

import pytest
from azure.ai.ml import Input, command, load_component
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities import Environment

import allranks
from allranks import catalogue, library
from allranks.azure.client import quiet_sdk
from allranks.errors import SpecError, UsageError
from tests.azure.stand_in.fixture import StandIn
from tests.azure.stand_in.state import WORKSPACE_ID
from tests.azure.submitting import Cli, job_sent, workspace_client

COUNT = command(
    name="count",
    command="ls '${{inputs.data}}' | wc -l > '${{outputs.number}}'/number.txt; echo '${{inputs.times}}'",
    inputs={"data": Input(type="uri_folder"), "times": Input(type="integer", min=1, max=9, default=3)},
    outputs={"number": {"type": "uri_folder"}},
    environment=Environment(image="ubuntu:24.04"),
)


@pipeline(default_compute="serverless")
def counting(data: Input(type="uri_folder"), times: int = 3) -> Any:
    """Counts the files of a folder."""
    count = COUNT(data=data, times=times)
    return {"number": count.outputs.number}


def test_run_a_pipeline_job(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name in "abc":
        (data / name).write_text(name)
    job = counting(data=Input(type="uri_folder", path=str(data)), times=2)
    result = allranks.run(job, runs_dir=tmp_path / "runs", values={"count.times": 5})
    assert result.status == "succeeded", result.document()
    assert (result.outputs["number"] / "number.txt").read_text().strip() == "3"
    log = result.steps["count"].folder / "user_logs" / "std_log.txt"
    assert log.read_text().strip() == "5"


def test_run_refuses_wrong_values(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="above the maximum of 9"):
        allranks.run(counting(data=Input(type="uri_folder", path=str(tmp_path))), times=10)
    with pytest.raises(UsageError, match="retries=-1"):
        allranks.run("image_classification", retries=-1)
    with pytest.raises(UsageError, match="a Command is no pipeline job"):
        allranks.run(COUNT)


def test_submit_a_pipeline_job(ready: StandIn, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    job = counting(data=Input(type="uri_folder", path=str(tmp_path)))
    sent = allranks.submit(job, times=4, compute="cpu-cluster", experiment="from_python")
    properties = job_sent(ready)
    assert sent.name.startswith("counting_")
    assert properties["inputs"]["times"]["value"] == "4"
    assert properties["experimentName"] == "from_python"
    assert properties["settings"]["default_compute"].endswith("/cpu-cluster")
    with pytest.raises(UsageError, match="has been sent before"):
        allranks.submit(job)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "option", "prefix"),
    [
        (("--workspace",), ("--registered",), WORKSPACE_ID),
        (("--registry", "shared"), ("--registry", "shared"), "azureml://registries/shared"),
    ],
    ids=["workspace", "registry"],
)
def test_components_by_their_ids(
    ready: StandIn, cli: Cli, place: tuple[str, ...], option: tuple[str, ...], prefix: str
) -> None:
    ready.reset()
    assert cli("register", "prepare_data", "train_ddp", "evaluate", *place).code == 0
    ready.forget_log()
    assert cli("submit", "image_classification", *option).code == 0
    train = job_sent(ready)["jobs"]["train"]
    assert train["componentId"].endswith(f"{prefix}/components/train_ddp/versions/{library.VERSION}")
    assert train["distribution"]["process_count_per_instance"] == "${{parent.inputs.processes_per_node}}"
    assert not ready.requests("PUT", "/codes/")
    assert not ready.requests("PUT", "/components/")


@pytest.mark.slow
def test_a_changed_component_goes_along_as_it_is(ready: StandIn, cli: Cli) -> None:
    @pipeline(default_compute="serverless")
    def changed(data: Input(type="uri_folder")) -> None:
        train = load_component(catalogue.component_files()["train_ddp"])
        train.command += " --seed 3"
        train(data=data).name = "train"

    ready.reset()
    assert cli("register", "train_ddp", "--workspace").code == 0
    data = Input(type="uri_folder", path="azureml://datastores/workspaceblobstore/paths/x")
    allranks.submit(changed(data=data), registered=True)
    assert "azureml_anonymous" in job_sent(ready)["jobs"]["train"]["componentId"]


def test_a_component_that_only_azure_knows(ready: StandIn, cli: Cli, tmp_path: Path) -> None:
    with quiet_sdk():
        theirs = load_component(catalogue.component_files()["train_ddp"])
        theirs.name, theirs.version = "theirs", "4"
        workspace_client().components.create_or_update(theirs)
    job = """
        type: pipeline
        settings: {default_compute: "azureml:cpu-cluster"}
        jobs:
          train:
            type: command
            component: azureml:theirs:4
            inputs:
              data: {type: uri_folder, path: "azureml://datastores/workspaceblobstore/paths/x"}
              epochs: 2
    """
    (tmp_path / "job.yaml").write_text(job)
    wrong = cli("submit", str(tmp_path / "job.yaml"), "train.epochs=0")
    assert (wrong.code, "below the minimum of 1" in wrong.err) == (2, True), "checked as if it were here"
    done = cli("submit", str(tmp_path / "job.yaml"), "train.epochs=5")
    assert done.code == 0, done.err
    train = job_sent(ready)["jobs"]["train"]
    assert train["componentId"].endswith("/components/theirs/versions/4")
    assert train["inputs"]["epochs"]["value"] == "5"
    (tmp_path / "job.yaml").write_text(job.replace("theirs:4", "theirs:5"))
    missing = cli("submit", str(tmp_path / "job.yaml"))
    assert (missing.code, "looking up the component azureml:theirs:5" in missing.err) == (2, True)


def test_a_pipeline_that_only_azure_knows_is_refused_by_name(ready: StandIn, cli: Cli, tmp_path: Path) -> None:
    inner = {"type": "command", "componentId": "azureml:theirs:4"}
    spec = {"name": "theirs", "version": "1", "type": "pipeline", "jobs": {"train": inner}, "inputs": {}, "outputs": {}}
    ready.put([("components", "theirs", "1", {"componentSpec": spec, "isAnonymous": False})])
    jobs = "jobs: {outer: {type: pipeline, component: 'azureml:theirs:1'}}"
    (tmp_path / "job.yaml").write_text(f"type: pipeline\nsettings: {{default_compute: serverless}}\n{jobs}\n")
    done = cli("submit", str(tmp_path / "job.yaml"))
    assert (done.code, "azureml:theirs:1 is a pipeline component" in done.err) == (2, True), done.err

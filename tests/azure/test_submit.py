"""What `allranks submit` sends: the bodies of the requests, and the files of the snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allranks import catalogue, library
from allranks.local import snapshot
from allranks.spec import read_component, read_pipeline
from tests.azure.stand_in.fixture import StandIn
from tests.azure.stand_in.state import WORKSPACE_ID
from tests.azure.submitting import Cli, component_of, job_sent

VERSION = library.VERSION

OWN = """
from pathlib import Path

from azure.ai.ml import Input, command
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities import Environment
from allranks import components, scale

count = command(
    name="count",
    command="ls ${{inputs.data}} | wc -l > ${{outputs.number}}/number.txt; echo ${{inputs.times}}",
    inputs={"data": Input(type="uri_folder"), "times": Input(type="integer", min=1, max=9, default=3)},
    outputs={"number": {"type": "uri_folder"}},
    environment=Environment(image="ubuntu:24.04"),
    code=str(Path(__file__).parent / "code"),
)

@pipeline
def training(data: Input(type="uri_folder"), nodes: int = 2):
    train = components.train_ddp(data=data, epochs=2)
    scale(train, nodes=nodes, processes_per_node=4, instance_type="Standard_NC96ads_A100_v4", shm_size="16g")
    train.environment_variables = {"LEVEL": "1"}
    return {"model": train.outputs.model}

@pipeline(default_compute="cpu-cluster", experiment_name="own")
def own(data: Input(type="uri_folder"), times: int = 3):
    counted = count(data=data, times=times)
    trained = training(data=data)
    return {"model": trained.outputs.model, "number": counted.outputs.number}
"""


def code_of(stand_in: StandIn, component: dict[str, Any]) -> dict[str, Any]:
    """The code asset of a component."""
    name, _, version = component["code"].partition("/codes/")[2].partition("/versions/")
    found: dict[str, Any] = stand_in.state["workspace"]["codes"][name][version]["properties"]
    return found


def assert_snapshot(stand_in: StandIn, component: dict[str, Any], name: str) -> None:
    """What lies in Azure's storage is what the local engine would give to a node, file by file, with the same hash."""
    files = snapshot.snapshot_files(read_component(catalogue.component_files()[name]))
    code = code_of(stand_in, component)
    assert code["properties"]["hash_sha256"] == snapshot.content_hash(files)
    assert stand_in.uploaded(code["codeUri"]) == {file.path: b"".join(file.chunks()) for file in files}


@pytest.mark.slow
def test_image_classification(ready: StandIn, cli: Cli) -> None:
    done = cli(
        "submit", "image_classification", "epochs=3", "train.clip_norm=2.5", "--compute", "cpu-cluster", "--json"
    )
    assert done.code == 0, done.err
    job = job_sent(ready)
    document = done.json
    assert document["status"] in ("waiting", "running")
    assert document["job"].startswith("image_classification_")
    assert "/runs/" in document["studio"]
    assert job["settings"]["default_compute"] == f"{WORKSPACE_ID}/computes/cpu-cluster"
    assert job["experimentName"] == "image_classification"
    assert job["inputs"]["epochs"] == {"value": "3", "jobInputType": "literal"}
    assert job["inputs"]["nodes"]["value"] == "2"
    assert "data" not in job["inputs"], "an optional input without a value is not sent"
    assert job["outputs"]["report"] == {"mode": "ReadWriteMount", "jobOutputType": "uri_folder"}
    train = job["jobs"]["train"]
    assert train["distribution"] == {
        "process_count_per_instance": "${{parent.inputs.processes_per_node}}",
        "distribution_type": "PyTorch",
    }
    assert train["resources"] == {"instance_count": "${{parent.inputs.nodes}}", "shm_size": "8g"}
    assert train["inputs"]["data"]["value"] == "${{parent.jobs.prepare.outputs.data}}"
    assert train["inputs"]["epochs"]["value"] == "${{parent.inputs.epochs}}"
    assert train["inputs"]["clip_norm"]["value"] == "2.5"
    for step, name in {"prepare": "prepare_data", "train": "train_ddp", "evaluate": "evaluate"}.items():
        component = component_of(ready, job["jobs"][step])
        environment = "evaluate" if step == "evaluate" else "pytorch"
        place = f"azureml:{WORKSPACE_ID}/environments/allranks-{environment}/versions/{VERSION}"
        assert component["environment"] == place
        assert_snapshot(ready, component, name)


@pytest.mark.slow
def test_what_is_there_is_not_sent_again(ready: StandIn, cli: Cli) -> None:
    cli("submit", "image_classification")
    ready.forget_log()
    assert cli("submit", "image_classification", "epochs=2").code == 0
    assert not ready.requests("PUT", "/storage.blob")
    assert not ready.requests("PUT", "/codes/")


@pytest.mark.slow
def test_compare_frameworks(ready: StandIn, cli: Cli) -> None:
    scale = ("--scale", "train_horovod=3x4", "--scale", "train_torchrun=2x8", "--scale", "train_multiworker=3x1")
    assert cli("submit", "compare_frameworks", *scale).code == 0
    steps = job_sent(ready)["jobs"]
    launch = {
        name: (step.get("distribution"), step.get("resources", {}).get("instance_count"))
        for name, step in steps.items()
    }
    assert launch["train_horovod"] == ({"distribution_type": "Mpi", "process_count_per_instance": 4}, 3)
    assert launch["train_torchrun"] == ({"distribution_type": "PyTorch", "process_count_per_instance": 1}, 2)
    assert steps["train_torchrun"]["inputs"]["processes_per_node"]["value"] == "8"
    assert launch["train_multiworker"] == (
        {"distribution_type": "TensorFlow", "worker_count": 3, "parameter_server_count": 0},
        3,
    )
    parameter_server = steps["train_parameter_server"]
    assert parameter_server["distribution"]["worker_count"] == "${{parent.inputs.nodes}}"
    assert parameter_server["distribution"]["parameter_server_count"] == 1
    assert launch["train_ddp"][1] == "${{parent.inputs.nodes}}", "another step of the pipeline keeps its binding"
    assert launch["compare"][0] is None
    assert_snapshot(ready, component_of(ready, steps["train_horovod"]), "train_horovod")
    assert_snapshot(ready, component_of(ready, steps["compare"]), "compare_models")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(catalogue.PIPELINES) - {"image_classification", "compare_frameworks"}))
def test_every_other_pipeline_of_the_library(ready: StandIn, cli: Cli, name: str) -> None:
    declared = read_pipeline(catalogue.pipeline_files()[name], resolve=catalogue.resolve).inputs.values()
    data = [f"{one.name}=azureml://datastores/workspaceblobstore/paths/x" for one in declared if one.required]
    done = cli("submit", name, *data)
    assert done.code == 0, done.err
    assert all(f"{WORKSPACE_ID}/components/" in str(step) for step in job_sent(ready)["jobs"].values())


def own_pipeline(folder: Path) -> str:
    """A user's pipeline, with code of its own and data; returns its target."""
    (folder / "code").mkdir()
    (folder / "code/notes.txt").write_text("code")
    (folder / "code/.allranks/runs/r").mkdir(parents=True)
    (folder / "code/.allranks/runs/r/model.pt").write_text("a model of an earlier run, which is no code")
    (folder / "data").mkdir()
    (folder / "data/rows.csv").write_text("1,2\n")
    (folder / "own.py").write_text(OWN)
    return f"{folder / 'own.py'}:own"


@pytest.mark.slow
def test_a_pipeline_of_the_users_own(ready: StandIn, cli: Cli, tmp_path: Path) -> None:
    target = own_pipeline(tmp_path)
    values = (f"data={tmp_path / 'data'}", "times=5", "trained.train.learning_rate=0.5")
    done = cli("submit", target, *values, "--scale", "trained.train=4x2")
    assert done.code == 0, done.err
    job = job_sent(ready)
    assert job["experimentName"] == "own"
    assert job["settings"]["default_compute"].endswith("/computes/cpu-cluster")
    data = job["inputs"]["data"]
    assert data["jobInputType"] == "uri_folder"
    assert data["uri"].startswith("azureml://datastores/workspaceblobstore/paths/LocalUpload/")
    uploaded = [path for path in ready.state["blobs"] if path.endswith("data/rows.csv")]
    assert [ready.state["blobs"][path] for path in uploaded] == [b"1,2\n"]
    assert job["inputs"]["times"]["value"] == "5"
    counted = component_of(ready, job["jobs"]["counted"])
    assert ready.uploaded(code_of(ready, counted)["codeUri"]) == {"notes.txt": b"code"}
    assert "CliV2AnonymousEnvironment" in counted["environment"]
    inner = component_of(ready, job["jobs"]["trained"])
    assert inner["type"] == "pipeline"
    train = inner["jobs"]["train"]
    assert train["resources"] == {
        "instance_count": 4,
        "instance_type": "Standard_NC96ads_A100_v4",
        "shm_size": "16g",
    }
    assert train["distribution"]["process_count_per_instance"] == 2
    assert train["environment_variables"] == {"LEVEL": "1"}
    assert train["inputs"]["learning_rate"]["value"] == "0.5"
    assert_snapshot(ready, component_of(ready, train), "train_ddp")


@pytest.mark.slow
def test_a_component_becomes_a_pipeline_of_one_step(ready: StandIn, cli: Cli, tmp_path: Path) -> None:
    values = (f"data={tmp_path}", "epochs=2", "--scale", "train_ddp=2x4", "--experiment", "mine")
    (tmp_path / "rows.csv").write_text("1\n")
    done = cli("submit", "train_ddp", *values)
    assert done.code == 0, done.err
    job = job_sent(ready)
    step = job["jobs"]["train_ddp"]
    assert job["settings"]["default_compute"].endswith("/computes/serverless")
    assert (job["experimentName"], step["resources"]["instance_count"]) == ("mine", 2)
    assert step["inputs"]["epochs"]["value"] == "2"
    assert step["inputs"]["data"]["job_input_type"] == "uri_folder"
    assert set(job["outputs"]) == {"model", "checkpoints", "metrics"}


PIPELINE_COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
name: two_steps
inputs:
  data: {type: uri_folder}
  epochs: {type: integer, default: 2, min: 1}
jobs:
  train:
    type: command
    component: azureml:train_ddp
    inputs: {data: "${{parent.inputs.data}}", epochs: "${{parent.inputs.epochs}}"}
"""


@pytest.mark.slow
def test_the_yaml_of_a_pipeline_component(ready: StandIn, cli: Cli, tmp_path: Path) -> None:
    path = catalogue.component_files()["train_ddp"]
    (tmp_path / "two.yaml").write_text(PIPELINE_COMPONENT.replace("azureml:train_ddp", str(path)))
    assert cli("submit", str(tmp_path / "two.yaml"), "data=azureml:numbers:1", "epochs=0").code == 2
    (tmp_path / "config.json").write_text("{}")
    done = cli("submit", str(tmp_path / "two.yaml"), "data=azureml://datastores/workspaceblobstore/paths/x", "epochs=7")
    assert done.code == 0, done.err
    job = job_sent(ready)
    assert job["inputs"]["epochs"]["value"] == "7"
    assert job["inputs"]["data"]["uri"] == "azureml://datastores/workspaceblobstore/paths/x"


def test_a_dry_run_asks_azure_nothing(stand_in: StandIn, cli: Cli) -> None:
    done = cli("submit", "image_classification", "epochs=3", "--scale", "train=2x4", "--dry-run", "--json")
    assert done.code == 0
    train = done.json["steps"]["train"]
    files = snapshot.snapshot_files(read_component(catalogue.component_files()["train_ddp"]))
    assert train["snapshot"] == snapshot.content_hash(files)
    assert (train["nodes"], train["processes"], train["files"]) == (2, 4, len(files))
    assert train["inputs"]["epochs"] == 3
    assert done.json["steps"]["evaluate"]["processes"] == 2, "bound to the pipeline's input"
    table = cli("submit", "image_classification", "--registry", "shared", "--dry-run")
    assert f"azureml://registries/shared/components/train_ddp/versions/{VERSION}" in table.out
    assert stand_in.log == []

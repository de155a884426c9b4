"""Documents of the kinds that people publish are read without a complaint, and mean what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.spec import (
    Component,
    Data,
    Distribution,
    Input,
    Output,
    Pipeline,
    Resources,
    Source,
    check_document,
    component_from,
    pipeline_from,
    read_component,
    read_pipeline,
)
from allranks.spec.document import parse_yaml, read_yaml
from allranks.spec.graph import step_dependencies
from allranks.spec.needs import Environment

# Microsoft's registry library: optional inputs with defaults, choices that look like booleans and numbers, dotted names.
REGISTRY = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: tune_text_model
version: 0.0.7
type: command
is_deterministic: false
display_name: Tune a text model
description: Tunes a model on a [table](https://example.org) of texts.
environment: azureml://registries/azureml/environments/text-gpu/labels/latest
code: ./src
distribution:
  type: pytorch
tags:
  Preview: ""
inputs:
  use_adapters:
    type: string
    enum:
    - "true"
    - "false"
    default: "false"
    optional: true
    description: If "true", only adapters are trained.
  precision: {type: string, enum: ["32", "16"], default: "32", optional: true}
  epsilon: {type: number, default: 1e-8, optional: true}
  steps: {type: integer, default: -1, optional: true}
  stage.learning_rate: {type: number, default: 0.00002, min: 0}
  stage.warmup: {type: integer, optional: true, min: 0}
  config: {type: uri_file, optional: true, mode: rw_mount}
  model: {type: custom_model, optional: false, mode: ro_mount}
outputs:
  folder:
    type: uri_folder
    description: Where the weights go.
    mode: rw_mount
command: >-
  python tune.py $[[--use_adapters '${{inputs.use_adapters}}']] $[[--precision '${{inputs.precision}}']]
  $[[--epsilon '${{inputs.epsilon}}']] $[[--steps '${{inputs.steps}}']] --lr '${{inputs.stage.learning_rate}}'
  $[[--warmup '${{inputs.stage.warmup}}']] $[[--config '${{inputs.config}}']] --model '${{inputs.model}}'
  --folder '${{outputs.folder}}'
"""

# The public collection of examples: a job with its own data, outputs of the job, commands in place, a sweep, hyphens.
JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
display_name: prepare_train_sweep
experiment_name: examples
description: A job of every kind of step
tags: {owner: somebody}
properties: {a: b}
identity: {type: user_identity}
inputs:
  rows: {type: uri_folder, path: ./rows, mode: ro_mount}
  remote: {type: uri_file, path: "wasbs://data@account.blob.core.windows.net/x.csv"}
  epochs: 3
  rate: 1
  nodes: 2
  machine: gpu-cluster
  nothing: ''
outputs:
  best: {mode: rw_mount}
  scored:
settings:
  default_datastore: azureml:workspaceblobstore
  default_compute: azureml:cpu-cluster
  continue_on_step_failure: false
jobs:
  look:
    type: command
    command: |
      # it's a look
      ls ${{inputs.rows}} > ${{outputs.listing}}/listing.txt
      echo ${{inputs.epochs}} ${{inputs.note}} '${{inputs.remote}}'
    code: src
    environment:
      image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04
      conda_file: ./conda.yaml
    inputs:
      rows: ${{parent.inputs.rows}}
      epochs: ${{parent.inputs.epochs}}
      remote: {type: uri_file, path: "${{parent.inputs.remote}}", mode: download}
      note: hello
    outputs:
      listing:
    environment_variables: {OMP_NUM_THREADS: 4, NOTE: "${{parent.inputs.machine}}"}
    resources: {instance_count: 2, shm_size: 8g}
    distribution: {type: MPI, process_count_per_instance: 2}
    limits: {timeout: 600}
    services: {my_jupyter: {type: jupyter_lab}}
  train:
    type: command
    component: file:./train.yaml
    compute: ${{parent.inputs.machine}}
    inputs:
      data: ${{parent.jobs.look.outputs.listing}}
      epochs: ${{parent.inputs.epochs}}
      rate: ${{parent.inputs.rate}}
      resume: ${{parent.inputs.nothing}}
    outputs:
      model: ${{parent.outputs.best}}
    resources: {instance_count: "${{parent.inputs.nodes}}", shm_size: 4g}
    distribution: {type: pytorch, process_count_per_instance: "${{parent.inputs.nodes}}"}
  search:
    type: sweep
    trial: ./train.yaml
    sampling_algorithm: random
    inputs:
      data: {type: uri_folder, path: ./rows}
    outputs:
      model: {type: mlflow_model, mode: upload}
    search_space:
      epochs: {type: choice, values: [1, 2]}
      rate: {type: loguniform, min_value: -6, max_value: -1}
    objective: {goal: Maximize, primary_metric: accuracy}
    limits: {max_total_trials: 4, max_concurrent_trials: 2, timeout: 7200}
    early_termination: {type: bandit, slack_factor: 0.1, evaluation_interval: 1}
  score:
    type: command
    component: ./train.yaml
    inputs:
      data: {type: uri_folder, path: azureml:rows@latest}
      resume: ${{parent.jobs.search.outputs.model}}
    outputs:
      model: {path: "${{parent.outputs.scored}}", mode: upload}
"""

INNER = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
name: prepare_and_train
version: 1
inputs:
  epochs: {type: integer, default: 5}
  machine: {type: string, optional: true}
outputs:
  model: {type: mlflow_model}
jobs:
  prepare: {type: command, component: ./prepare.yaml}
  train:
    type: command
    component: ./train.yaml
    inputs: {data: "${{parent.jobs.prepare.outputs.data}}", epochs: "${{parent.inputs.epochs}}"}
    outputs: {model: "${{parent.outputs.model}}"}
    compute: ${{parent.inputs.machine}}
"""

OUTER = """\
type: pipeline
inputs: {epochs: 7}
jobs:
  first:
    type: pipeline
    component: ./inner.yaml
    inputs: {epochs: "${{parent.inputs.epochs}}"}
  second:
    type: command
    component: ./train.yaml
    inputs: {data: {type: uri_folder, path: ./rows}, resume: "${{parent.jobs.first.outputs.model}}"}
"""


def _write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.fixture
def job(folder: Path) -> Pipeline:
    (folder / "conda.yaml").write_text("name: x\n")
    return read_pipeline(_write(folder, "job.yaml", JOB))


def test_a_registry_component(folder):
    component = read_component(_write(folder, "component.yaml", REGISTRY))
    assert [problem.severity for problem in check_document(component)] == ["warning"]
    assert component.inputs["stage.learning_rate"] == Input("stage.learning_rate", "number", 0.00002, min=0)
    assert component.inputs["use_adapters"].enum == ("true", "false")
    assert component.inputs["epsilon"].default == 1e-8
    assert not component.is_deterministic
    assert component.version == "0.0.7"
    assert component.environment == Environment("azureml://registries/azureml/environments/text-gpu/labels/latest")


def test_a_job_with_every_kind_of_step(job):
    assert check_document(job, {}) == []
    assert job.settings.default_compute == "azureml:cpu-cluster"
    assert job.settings.continue_on_step_failure is False
    assert job.inputs["rows"].default == Data(str(job.source.base / "rows"), "uri_folder", "ro_mount")
    assert job.inputs["rate"] == Input("rate", "number", 1)
    assert job.inputs["nothing"] == Input("nothing", "uri_folder", optional=True)
    assert step_dependencies(job.steps["train"]) == ("look",)


def test_a_command_in_place_becomes_a_component(job):
    step = job.steps["look"]
    assert isinstance(step.component, Component)
    assert step.component.name == "look"
    types = {name: declared.type for name, declared in step.component.inputs.items()}
    assert types == {"rows": "uri_folder", "epochs": "integer", "remote": "uri_file", "note": "string"}
    assert step.component.outputs == {"listing": Output("listing", "uri_folder")}
    assert step.component.distribution == Distribution("mpi", 2)
    assert step.timeout == 600
    assert step.environment_variables["OMP_NUM_THREADS"] == "4"


def test_the_settings_of_steps(job):
    train, search = job.steps["train"], job.steps["search"]
    assert train.resources == Resources("${{parent.inputs.nodes}}", shm_size="4g")
    assert train.distribution == Distribution("pytorch", "${{parent.inputs.nodes}}")
    assert train.compute == "${{parent.inputs.machine}}"
    assert search.sweep is not None
    assert search.sweep.objective == ("maximize", "accuracy")
    assert search.sweep.space["epochs"] == {"type": "choice", "values": [1, 2]}
    assert search.sweep.limits["max_total_trials"] == 4
    assert job.steps["score"].outputs["model"] == Output("model", path="${{parent.outputs.scored}}", mode="upload")


def test_a_pipeline_in_a_pipeline(folder):
    _write(folder, "inner.yaml", INNER)
    outer = read_pipeline(_write(folder, "outer.yaml", OUTER))
    assert check_document(outer) == []
    inner = outer.steps["first"].component
    assert isinstance(inner, Pipeline)
    assert inner.name == "prepare_and_train"
    assert list(inner.steps) == ["prepare", "train"]
    (problem,) = check_document(outer, {"epochs": "20000"})
    assert problem.file == folder / "inner.yaml"
    assert problem.where == "jobs.train.inputs.epochs"
    assert problem.line == 15


def test_a_job_of_a_pipeline_component(folder):
    _write(folder, "inner.yaml", INNER)
    text = "type: pipeline\ndisplay_name: run it\ncomponent: ./inner.yaml\ninputs: {epochs: 2}\ncompute: azureml:c\n"
    pipeline = read_pipeline(_write(folder, "job.yaml", text))
    assert pipeline.inputs["epochs"] == Input("epochs", "integer", 2)
    assert pipeline.settings.default_compute == "azureml:c"
    assert check_document(pipeline, {}) == []
    with pytest.raises(SpecError, match=r"the pipeline component has no input 'epoch'. Did you mean 'epochs'?"):
        read_pipeline(_write(folder, "job.yaml", text.replace("epochs", "epoch")))


def test_a_command_job_is_a_component_with_values(folder):
    text = (
        "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ntype: command\n"
        "command: python a.py ${{inputs.data}} ${{inputs.epochs}} ${{outputs.out}}\ncode: src\n"
        "environment: azureml:e@latest\ncompute: azureml:cpu\nexperiment_name: x\n"
        "inputs:\n  data: {type: uri_folder, path: rows}\n  epochs: 3\noutputs:\n  out:\n"
        "environment_variables: {A: b}\nlimits: {timeout: 60}\nname: a_job\n"
    )
    component = read_component(_write(folder, "job.yaml", text))
    assert check_document(component, {}) == []
    assert component.inputs["data"].default == Data(str(folder / "rows"), "uri_folder")
    assert component.timeout == 60
    assert component.environment_variables == {"A": "b"}


def test_names_are_found_by_the_resolver(folder):
    asked = []

    def resolve(reference: str) -> Path:
        asked.append(reference)
        return folder / "prepare.yaml"

    text = "type: pipeline\njobs:\n  a: {component: prepare}\n  b: {component: 'azureml:prepare:1'}\n  c: {component: ./train.yaml}\n"
    text += "    \n"
    text = text.replace("./train.yaml}", "./train.yaml, inputs: {data: {path: 'https://example.org/x'}}}")
    pipeline = read_pipeline(_write(folder, "job.yaml", text), resolve)
    assert asked == ["prepare", "azureml:prepare:1"]
    assert {step.component.name for step in pipeline.steps.values()} == {"prepare", "train"}


def test_a_document_from_memory(folder):
    data, _ = read_yaml(folder / "prepare.yaml")
    nested = {"type": "pipeline", "jobs": {"prepare": {"type": "command", "component": data}}}
    document = {"type": "pipeline", "jobs": {"outer": {"type": "pipeline", "component": nested}}}
    pipeline = pipeline_from(document, Source(None, folder))
    assert check_document(pipeline) == []
    inner = pipeline.steps["outer"].component
    assert isinstance(inner, Pipeline)
    assert component_from(data, Source(None, folder)) == inner.steps["prepare"].component
    document["jobs"]["outer"]["component"]["jobs"]["prepare"]["inputs"] = {"rows": 0}
    (problem,) = check_document(pipeline_from(document, Source(None, folder)))
    assert str(problem) == ("jobs.outer.component.jobs.prepare.inputs.rows: 0 is below the minimum of 1 (at least 1).")


def test_anchors_and_merges(tmp_path):
    text = "base: &base {a: 1, b: 2}\nother: {<<: *base, b: 3}\nthird: *base\nlist: {<<: [*base, {c: 4, a: 5}]}\n"
    data, source = parse_yaml(text, tmp_path / "x.yaml")
    assert data["other"] == {"a": 1, "b": 3}
    assert data["third"] == {"a": 1, "b": 2}
    assert data["list"] == {"a": 1, "b": 2, "c": 4}
    assert source.problems == ()
    assert source.lines["third"] == 3
    assert source.problem("third.a", "x").line == 3


def test_many_aliases_are_no_bomb(tmp_path):
    text = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    data, _ = parse_yaml(text, tmp_path / "x.yaml")
    assert len(data) == 60


def test_what_yaml_makes_of_texts(tmp_path):
    text = "a: 1.10\nb: yes\nc: 2024-01-01\nd: 12345678901234567890\ne: null\non: 1\n1: x\nf: 0x10\n"
    data, source = parse_yaml(text, tmp_path / "x.yaml")
    assert data == {
        "a": 1.1,
        "b": True,
        "c": "2024-01-01",
        "d": 12345678901234567890,
        "e": None,
        "on": 1,
        "1": "x",
        "f": 16,
    }
    assert source.texts == {"a": "1.10", "b": "yes", "f": "0x10"}


def test_lines_are_those_of_the_keys(folder):
    _, source = read_yaml(folder / "train.yaml")
    text = (folder / "train.yaml").read_text().splitlines()
    assert text[source.lines["inputs.epochs"] - 1].startswith("  epochs:")
    assert text[source.lines["command"] - 1].startswith("command:")


@pytest.mark.filterwarnings("ignore")
def test_the_sdk_takes_these_documents_too(folder):
    ml = pytest.importorskip("azure.ai.ml")
    (folder / "conda.yaml").write_text("name: x\n")
    _write(folder, "inner.yaml", INNER)
    for name, text in (("job.yaml", JOB), ("outer.yaml", OUTER)):
        assert ml.load_job(_write(folder, name, text)).type == "pipeline"
    for name, text in (("registry.yaml", REGISTRY), ("again.yaml", INNER)):
        assert ml.load_component(_write(folder, name, text)).name

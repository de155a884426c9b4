"""Specs as a registry of Azure ML holds them: what Azure takes is no error, though much of it cannot run here."""

from __future__ import annotations

import pytest

CONTROL = """\
type: command
name: choose_framework
version: 0.0.3.test
is_deterministic: True
environment: azureml://registries/shared/environments/selectors/labels/latest
code: .
inputs:
  task: {type: string, optional: false, enum: ['images', 'boxes']}
  model_name: {type: string, optional: true, description: "A name, 'as it is' in the zoo."}
  checked: {type: uri_file, optional: true}
outputs:
  output: {type: boolean, mode: rw_mount, is_control: true}
command: mldesigner execute --source choose.py --name choose --inputs task="${{inputs.task}}"
  $[[model_name="${{inputs.model_name}}"]] --outputs output="${{outputs.output}}"
tags:
  Preview: ""
"""

PARALLEL = """\
type: parallel
name: embed_in_parallel
version: 0.0.3
resources: {instance_count: -1}
inputs:
  chunks: {type: uri_folder}
outputs:
  vectors: {type: uri_folder, mode: rw_mount}
mini_batch_size: "3"
input_data: ${{inputs.chunks}}
task: {type: run_function, code: ., entry_script: embed.py, environment: 'azureml:embedder@latest'}
"""

PIPELINE = """\
type: pipeline
name: import_and_score
version: 0.0.3
settings: {default_compute: serverless}
inputs:
  cluster: {type: string, optional: true, default: serverless}
  size: {type: string, optional: true, default: Standard_D4as_v4}
  nodes: {type: integer, min: 1, default: 1, optional: true}
  model_name: {type: string, optional: true}
  key: {type: string, optional: true}
  rows: {type: mltable, optional: false}
outputs:
  model: {type: mlflow_model, mode: rw_mount}
jobs:
  check:
    component: azureml:check_inputs:0.0.3
    compute: ${{parent.inputs.cluster}}
    resources:
      instance_type: '${{parent.inputs.size}}'
      properties: {compute_specification: {automatic: true}}
    identity: {type: user_identity}
    environment_variables: {CONNECTION: '${{parent.inputs.key}}'}
    inputs:
      rows: {type: mltable, path: '${{parent.inputs.rows}}'}
      extra: '"model=${{parent.inputs.model_name}};rows=${{parent.inputs.rows}}"'
    outputs:
      report: {type: uri_file, path: 'azureml://datastores/${{default_datastore}}/paths/${{name}}/${{output_name}}.json'}
  choose:
    type: command
    component: azureml://registries/shared/components/choose_framework/versions/0.0.3
    inputs: {task: images, checked: '${{parent.jobs.check.outputs.report}}'}
  which:
    type: if_else
    condition: ${{parent.jobs.choose.outputs.output}}
    true_block: ${{parent.jobs.score}}
    false_block: ${{parent.jobs.tune}}
  score:
    type: parallel
    component: azureml:score_rows:0.0.3
    inputs: {rows: '${{parent.inputs.rows}}', waits: False}
    outputs: {scores: {type: uri_folder}}
    resources: {instance_count: '${{parent.inputs.nodes}}'}
    mini_batch_size: 100KB
    retry_settings: {timeout: 6000, max_retries: 10}
  tune:
    type: command
    component: azureml:tune@default
    distribution: {type: mpi, process_count_per_instance: '${{parent.inputs.nodes}}'}
    resources: {instance_count: '${{parent.inputs.nodes}}', shm_size: '16g'}
    inputs: {rows: '${{parent.inputs.rows}}', as_mlflow: true}
    outputs: {model: '${{parent.outputs.model}}'}
"""


@pytest.mark.parametrize("text", [CONTROL, PARALLEL, PIPELINE], ids=["control", "parallel", "pipeline"])
def test_a_spec_that_azure_takes_has_no_error(problems_of, folder, text):
    (folder / "embed.py").touch()  # the entry script of PARALLEL
    problems = problems_of(text)
    assert [str(problem) for problem in problems if problem.severity == "error"] == []
    assert all("cannot run here" in problem.message for problem in problems)


def test_each_step_that_cannot_run_here_is_named_once(problems_of):
    found = [problem.where for problem in problems_of(PIPELINE)]
    assert found == [
        "jobs.check.component",
        "jobs.choose.component",
        "jobs.score.component",
        "jobs.tune.component",
    ]

"""Sound documents of the other kinds of steps, in the form of ``mutations.FILES``: parallel and sweeps."""

from __future__ import annotations

_SCHEMAS = "https://azuremlschemas.azureedge.net/latest"
KINDS = {
    "src/score.py": "",
    "score.yaml": f"""\
$schema: {_SCHEMAS}/parallelComponent.schema.json
type: parallel
name: score
version: "1"
display_name: Score
description: Scores files.
inputs:
  images: {{type: uri_folder, description: Files.}}
  label: {{type: string, default: cat}}
outputs:
  scores: {{type: uri_file}}
resources: {{instance_count: 2}}
input_data: ${{{{inputs.images}}}}
mini_batch_size: "10"
max_concurrency_per_instance: 2
error_threshold: 5
mini_batch_error_threshold: 1
logging_level: DEBUG
retry_settings: {{max_retries: 2, timeout: 60}}
task:
  type: run_function
  code: ./src
  entry_script: score.py
  environment: azureml:numbers:1
  program_arguments: --label ${{{{inputs.label}}}}
  append_row_to: ${{{{outputs.scores}}}}
""",
    "batches.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
settings: {{default_compute: azureml:cpu}}
inputs:
  rows: {{type: uri_folder, path: ./rows}}
outputs:
  scores: {{type: uri_file}}
jobs:
  named:
    type: parallel
    component: ./score.yaml
    compute: azureml:gpu
    inputs: {{images: "${{{{parent.inputs.rows}}}}", label: dog}}
    outputs: {{scores: "${{{{parent.outputs.scores}}}}"}}
    mini_batch_size: "5"
    error_threshold: -1
    resources: {{instance_count: 3}}
  inline:
    type: parallel
    inputs: {{table: "${{{{parent.inputs.rows}}}}"}}
    outputs: {{found: {{type: uri_file, mode: rw_mount}}}}
    input_data: ${{{{inputs.table}}}}
    mini_batch_size: 10kb
    max_concurrency_per_instance: 1
    logging_level: INFO
    retry_settings: {{max_retries: 1, timeout: 30}}
    environment_variables: {{LEVEL: "3"}}
    resources: {{instance_count: 2}}
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      environment: azureml:numbers:1
      append_row_to: ${{{{outputs.found}}}}
""",
    "policies.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
settings: {{default_compute: azureml:cpu}}
jobs:
  search:
    type: sweep
    trial: ./small.yaml
    search_space: {{rate: {{type: choice, values: [0.1, 0.2]}}}}
    sampling_algorithm: grid
    objective: {{goal: maximize, primary_metric: accuracy}}
    limits: {{max_total_trials: 4}}
    early_termination: {{type: median_stopping, evaluation_interval: 1}}
    queue_settings: {{job_tier: standard}}
""",
}

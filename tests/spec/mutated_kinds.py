"""Sound documents of the other kinds of steps, in the form of ``mutations.FILES``: parallel, Spark, copies, sweeps."""

from __future__ import annotations

_SCHEMAS = "https://azuremlschemas.azureedge.net/latest"
_EXECUTORS = "{spark.driver.cores: 1, spark.driver.memory: 2g, spark.executor.cores: 2, spark.executor.memory: 2g, spark.executor.instances: 1}"
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
    "count.yaml": f"""\
$schema: {_SCHEMAS}/sparkComponent.schema.json
type: spark
name: count
version: "1"
inputs:
  text: {{type: uri_file, mode: direct}}
  share: {{type: number, default: 0.5}}
outputs:
  counts: {{type: uri_folder, mode: direct}}
code: ./src
entry: {{file: train.py}}
py_files: [other.zip]
environment: azureml:numbers:1
conf: {_EXECUTORS}
args: --text ${{{{inputs.text}}}} --share ${{{{inputs.share}}}} --counts ${{{{outputs.counts}}}}
""",
    "counting.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
inputs:
  rows: {{type: uri_file, path: ./rows/rows.csv, mode: direct}}
outputs:
  counts: {{type: uri_folder, mode: direct}}
jobs:
  named:
    type: spark
    component: ./count.yaml
    inputs: {{text: "${{{{parent.inputs.rows}}}}", share: 0.3}}
    outputs: {{counts: "${{{{parent.outputs.counts}}}}"}}
    resources: {{instance_type: standard_e4s_v3, runtime_version: "3.4"}}
  inline:
    type: spark
    code: ./src
    entry: {{file: train.py}}
    args: --text ${{{{inputs.text}}}}
    inputs: {{text: "${{{{parent.inputs.rows}}}}"}}
    conf: {_EXECUTORS}
    identity: {{type: managed}}
    compute: azureml:attached
""",
    "spark.yaml": f"""\
$schema: {_SCHEMAS}/sparkJob.schema.json
type: spark
display_name: One job
experiment_name: tries
code: ./src
entry: {{file: train.py}}
conf: {_EXECUTORS}
inputs:
  rows: {{type: uri_file, path: ./rows/rows.csv, mode: direct}}
outputs:
  counts: {{type: uri_folder, mode: direct}}
args: --rows ${{{{inputs.rows}}}} --counts ${{{{outputs.counts}}}}
identity: {{type: user_identity}}
resources: {{instance_type: standard_e8s_v3, runtime_version: "3.4"}}
""",
    "merge.yaml": f"""\
$schema: {_SCHEMAS}/dataTransferCopyComponent.schema.json
type: data_transfer
name: merge
version: "1"
task: copy_data
data_copy_mode: merge_with_overwrite
inputs:
  one: {{type: uri_folder}}
  two: {{type: uri_folder, optional: true}}
outputs:
  both: {{type: uri_folder}}
""",
    "copying.yaml": f"""\
$schema: {_SCHEMAS}/pipelineJob.schema.json
type: pipeline
settings: {{default_compute: azureml:adf}}
inputs:
  rows: {{type: uri_folder, path: ./rows}}
outputs:
  merged: {{type: uri_folder}}
jobs:
  named:
    type: data_transfer
    component: ./merge.yaml
    task: copy_data
    inputs: {{one: "${{{{parent.inputs.rows}}}}", two: "${{{{parent.inputs.rows}}}}"}}
    outputs: {{both: "${{{{parent.outputs.merged}}}}"}}
  inline:
    type: data_transfer
    task: copy_data
    data_copy_mode: fail_if_conflict
    compute: azureml:adf
    inputs: {{one: {{type: uri_folder, path: ./rows}}}}
    outputs: {{copied: {{type: uri_folder}}}}
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

"""The ways of writing that are usual in Azure's own collections of examples: five steps that make use of all of them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.local.support import pipeline, run_json, step

HERE = ("--python", f"*={sys.executable}")  # what their environments ask for would have to be fetched

PIPELINE = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json

type: pipeline
name: rivers
display_name: rivers_of_a_valley
description: Five steps, written in the ways that examples are
experiment_name: rivers
compute: azureml:cpu-cluster  # of the pipeline itself, where others say default_compute
settings:
    default_datastore: azureml:workspaceblobstore
    default_compute: azureml:cpu-cluster
    continue_on_step_failure: false
    force_rerun: true
properties: {}
inputs:
  levels:  # states no type
    path: ./levels
    mode: ro_mount
  stations: {type: uri_file, path: "azureml:stations:4"}
  steepness: 1.5
  most: {value: 40}
  season: 'wet'
outputs:
  gathered:
    path: /gathered
    mode: rw_mount
  flow:
    mode: upload
  warned:
jobs:
  gather_job:
    type: command
    comment: any text
    component: file:./gather.yml
    inputs:
      levels: {path: "${{parent.inputs.levels}}", mode: download}
      stations: ${{parent.inputs.stations}}
    outputs: {rows: "${{parent.outputs.gathered}}"}
  flow_job:
    type: command
    compute: azureml:gpu-cluster
    component: ./flow.yml
    inputs:
      rows: ${{parent.jobs.gather_job.outputs.rows}}
      steepness: ${{parent.inputs.steepness}}
      season: ${{parent.inputs.season}}_of_${{parent.inputs.season}}
    outputs:
      flow: {path: "${{parent.outputs.flow}}", mode: upload}
    resources: {instance_count: 2}
    distribution: {type: pytorch, process_count_per_instance: 1}
  check_job:
    type: command
    component: azureml:check_flow@latest
    inputs: {flow: "${{parent.jobs.flow_job.outputs.flow}}", most: "${{parent.inputs.most}}"}
    outputs:
      over: {type: uri_folder}
  warn_job:
    component:
      command: sed s/^/warn:/ ${{inputs.over}}/over.txt > ${{outputs.warned}}/warned.txt
      environment: {image: "docker.io/python", conda_file: {dependencies: [python=3.8, {pip: [numpy]}]}}
      inputs: {over: {type: uri_folder}}
      outputs: {warned: {type: uri_folder}}
    inputs: {over: "${{parent.jobs.check_job.outputs.over}}"}
    outputs: {warned: "${{parent.outputs.warned}}"}
  tell_job:
    command: echo told >> ${{outputs.told}}/told.txt && cat ${{inputs.warned}}/warned.txt
    environment: azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu@latest
    identity: {type: AMLToken}
    services: {look: {type: tensor_board, log_dir: ~/logs}}
    inputs: {"warned": "${{parent.jobs.warn_job.outputs.warned}}"}
    outputs:
      told:
"""

COMPONENTS = {
    "gather": """
# <component>
type: command

name: gather_levels
display_name: GatherLevels
version: 1
inputs:
  levels: {type: uri_folder}
  stations: {type: uri_file}
outputs:
  rows: {type: uri_folder}
code: ./gather_src
environment: azureml:AzureML-sklearn-0.24-ubuntu18.04-py37-cpu:5
command: >-
  python gather.py
  --levels ${{inputs.levels}}
  --stations ${{inputs.stations}}
  --rows ${{outputs.rows}}
# </component>
""",
    "flow": """
type: command
name: flow
version: 10
inputs:
  rows: {type: uri_folder}
  steepness: {type: number, default: 0.01}
  season: {type: string, optional: True, default: "dry"}
  note: {type: string, optional: true}
outputs:
  flow: {type: uri_folder}
code: ./flow_src
environment: azureml:AzureML-ACPT-pytorch-1.12-py39-cuda11.6-gpu:8
command: >-
  echo "$RANK of $WORLD_SIZE [${{inputs.season}}]" > ${{outputs.flow}}/rank$RANK.txt &&
  python flow.py ${{inputs.rows}} ${{inputs.steepness}} ${{outputs.flow}} $[[--note ${{inputs.note}}]]
distribution: {type: pytorch, process_count_per_instance: 2}
resources: {instance_count: 4}
""",
    "check": """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: check_flow
version: 0.0.1
inputs:
  flow: {type: uri_folder}
  most: {type: integer}
outputs:
  over: {type: uri_folder}
environment: azureml:AzureML-Minimal:1
command: echo $(cat ${{inputs.flow}}/flow.txt) over ${{inputs.most}} > ${{outputs.over}}/over.txt
""",
}

SCRIPTS = {
    "gather": (
        "import argparse, pathlib\n"
        "parser = argparse.ArgumentParser('gather')\n"
        "for name in ('--levels', '--stations', '--rows'): parser.add_argument(name, type=pathlib.Path)\n"
        "given = parser.parse_args()\n"
        "names = given.stations.read_text().split()\n"
        "(given.rows / 'rows.txt').write_text(' '.join((given.levels / name).read_text() for name in names))\n"
    ),
    "flow": (
        "import os, pathlib, sys\n"
        "rows, steepness, out = sys.argv[1:4]\n"
        "total = sum(map(int, (pathlib.Path(rows) / 'rows.txt').read_text().split()))\n"
        "if os.environ['RANK'] == '0': (pathlib.Path(out) / 'flow.txt').write_text(f'{total * float(steepness):g}')\n"
    ),
}


def lay_out(folder: Path) -> Path:
    for name, text in COMPONENTS.items():
        (folder / f"{name}.yml").write_text(text)
    for name, text in SCRIPTS.items():
        (folder / f"{name}_src").mkdir()
        (folder / f"{name}_src" / f"{name}.py").write_text(text)
    (folder / "levels").mkdir()
    for name, level in (("upper", 20), ("lower", 24), ("dry", 99)):
        (folder / "levels" / name).write_text(str(level))
    (folder / "stations.txt").write_text("upper lower")
    (folder / "pipeline.yml").write_text(PIPELINE)
    return folder / "pipeline.yml"


def test_the_idioms_of_azures_examples_run_as_they_stand(tmp_path):
    maps = ("--map", "azureml:stations:4=stations.txt", "--map", "azureml:check_flow@latest=check.yml")
    run = run_json(lay_out(tmp_path), *maps, *HERE, cwd=tmp_path)
    assert run["exit"] == 0, run
    steps = run["steps"]
    assert list(steps) == ["gather_job", "flow_job", "check_job", "warn_job", "tell_job"]
    # The step's own two nodes with one rank each stand above the component's four with two.
    assert (steps["flow_job"]["nodes"], steps["flow_job"]["processes"]) == (2, 1)
    flow = Path(run["outputs"]["flow"])
    assert (flow / "rank1.txt").read_text() == "1 of 2 [wet_of_wet]\n"
    assert (flow / "flow.txt").read_text() == "66"  # (20 + 24) times 1.5
    assert (Path(run["outputs"]["warned"]) / "warned.txt").read_text() == "warn:66 over 40\n"
    assert (Path(run["outputs"]["gathered"]) / "rows.txt").read_text() == "20 24"
    assert (Path(steps["tell_job"]["outputs"]["told"]) / "told.txt").read_text() == "told\n"


def test_what_is_not_on_this_machine_is_refused_with_the_options_that_name_it(tmp_path):
    file = lay_out(tmp_path)
    (tmp_path / "check.yml").unlink()  # or the checkout would have it
    run = run_json(file, *HERE, cwd=tmp_path)
    assert run["exit"] == 2
    assert "--map azureml:check_flow@latest=PATH" in run["error"]["message"], run


def test_a_step_finds_its_outputs_folder_made_on_each_node_as_on_azure_ml(tmp_path: Path) -> None:
    command = "echo $RANK > ./outputs/kept.txt"
    more = "distribution: {type: pytorch}, resources: {instance_count: 2}"
    pipeline(tmp_path, f"type: pipeline\njobs: {{a: {step(command, more=more)}}}\n")
    run = run_json("pipeline.yaml", *HERE, cwd=tmp_path)
    assert run["status"] == "succeeded", run
    kept = sorted(tmp_path.glob(".allranks/runs/*/steps/a/nodes/*/work/outputs/kept.txt"))
    assert [file.read_text() for file in kept] == ["0\n", "1\n"]


ARTIFACTS = """
type: pipeline
jobs:
  first:
    command: echo kept > outputs/kept.txt; echo seen > ./logs/seen.txt
    environment: azureml:some:1
    outputs: {artifacts: }
  second:
    command: cat ${{inputs.made}}/outputs/kept.txt ${{inputs.made}}/logs/seen.txt > ${{outputs.both}}/both.txt
    environment: azureml:some:1
    inputs: {made: "${{parent.jobs.first.outputs.artifacts}}"}
    outputs: {both: {type: uri_folder}}
"""


def test_what_is_written_to_outputs_and_logs_is_there_for_the_next_step(tmp_path):
    (tmp_path / "pipeline.yml").write_text(ARTIFACTS)
    result = run_json("pipeline.yml", *HERE, cwd=tmp_path)
    assert result["status"] == "succeeded", result
    assert (Path(result["steps"]["second"]["outputs"]["both"]) / "both.txt").read_text() == "kept\nseen\n"

"""Pipelines as other people write them, of the kinds that Azure's own examples show: they run here as they stand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.local.support import run_json

HERE = ("--python", f"*={sys.executable}")  # what their environments ask for would have to be fetched

COMPONENT = """
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
name: {name}
display_name: {name}
version: 1
type: command
inputs: {inputs}
outputs: {outputs}
code: ./{name}_src
environment: azureml://registries/azureml/environments/sklearn-1.5/labels/latest
command: {command}
"""

PIPELINE = """
$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json
type: pipeline
display_name: taxi_regression
description: five steps
experiment_name: taxi
tags: {owner: somebody}
settings:
  default_compute: azureml:cpu-cluster
  continue_on_step_failure: false
inputs:
  raw:
    type: uri_folder
    path: ./data
    mode: ro_mount
  rate: 2
  greeting: hello
outputs:
  scores:
    type: uri_folder
    mode: rw_mount
jobs:
  prep_job:
    type: command
    component: ./prep.yml
    inputs:
      raw: ${{parent.inputs.raw}}
    outputs:
      prepared:
  left_job:
    type: command
    component: ./scale.yml
    inputs: {data: "${{parent.jobs.prep_job.outputs.prepared}}", factor: "${{parent.inputs.rate}}"}
  right_job:
    type: command
    component: file:./scale.yml
    inputs: {data: "${{parent.jobs.prep_job.outputs.prepared}}", factor: 3}
  nested_job:
    type: pipeline
    component: ./nested.yml
    inputs: {one: "${{parent.jobs.left_job.outputs.scaled}}", other: "${{parent.jobs.right_job.outputs.scaled}}"}
  tune_job:
    type: sweep
    sampling_algorithm: grid
    search_space:
      x: {type: choice, values: [1, 4, 2]}
    objective: {goal: maximize, primary_metric: score}
    limits: {max_total_trials: 3, max_concurrent_trials: 2}
    trial: ./tune.yml
    inputs: {data: "${{parent.jobs.nested_job.outputs.sum}}"}
  say_job:
    type: command
    command: >-
      echo "${{inputs.greeting}}" | tr a-z A-Z > ${{outputs.said}} &&
      cat ${{inputs.best}}/best.json >> ${{outputs.said}}
    environment:
      image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04
    environment_variables: {MODE: quiet}
    inputs: {greeting: "${{parent.inputs.greeting}}", best: "${{parent.jobs.tune_job.outputs.best}}"}
    outputs:
      said: {type: uri_file}
  score-job:
    type: command
    component: ./score.yml
    inputs: {best: "${{parent.jobs.tune_job.outputs.best}}"}
    outputs: {scores: "${{parent.outputs.scores}}"}
"""

NESTED = """
type: pipeline
inputs:
  one: {type: uri_folder}
  other: {type: uri_folder}
outputs:
  sum: {type: uri_folder}
jobs:
  add:
    type: command
    component: ./add.yml
    inputs: {one: "${{parent.inputs.one}}", other: "${{parent.inputs.other}}"}
    outputs: {sum: "${{parent.outputs.sum}}"}
"""

SCRIPTS = {
    "prep": "import sys, pathlib as p\nrows=sum(int(f.read_text()) for f in p.Path(sys.argv[1]).iterdir())\n"
    "(p.Path(sys.argv[2])/'n').write_text(str(rows))\n",
    "scale": "import sys, pathlib as p\nn=int((p.Path(sys.argv[1])/'n').read_text())\n"
    "(p.Path(sys.argv[3])/'n').write_text(str(n*int(sys.argv[2])))\n",
    "add": "import sys, pathlib as p\nn=[int((p.Path(a)/'n').read_text()) for a in sys.argv[1:3]]\n"
    "(p.Path(sys.argv[3])/'n').write_text(str(sum(n)))\n",
    "tune": "import json, os, sys, pathlib as p\nn=int((p.Path(sys.argv[1])/'n').read_text())\nx=int(sys.argv[2])\n"
    "os.makedirs('outputs', exist_ok=True)\n"
    "open('outputs/metrics.jsonl','a').write(json.dumps({'time':0,'step':1,'metrics':{'score':n*x}})+'\\n')\n"
    "(p.Path(sys.argv[3])/'best.json').write_text(json.dumps({'x':x,'score':n*x}))\n",
    "score": "import shutil, sys\nshutil.copy(sys.argv[1]+'/best.json', sys.argv[2])\n",
}
PORTS = {
    "prep": ("{raw: {type: uri_folder}}", "{prepared: {type: uri_folder}}", "${{inputs.raw}} ${{outputs.prepared}}"),
    "scale": (
        "{data: {type: uri_folder}, factor: {type: integer, default: 1}}",
        "{scaled: {type: uri_folder}}",
        "${{inputs.data}} ${{inputs.factor}} ${{outputs.scaled}}",
    ),
    "add": (
        "{one: {type: uri_folder}, other: {type: uri_folder}}",
        "{sum: {type: uri_folder}}",
        "${{inputs.one}} ${{inputs.other}} ${{outputs.sum}}",
    ),
    "tune": (
        "{data: {type: uri_folder}, x: {type: integer}}",
        "{best: {type: uri_folder}}",
        "${{inputs.data}} ${{inputs.x}} ${{outputs.best}}",
    ),
    "score": ("{best: {type: uri_folder}}", "{scores: {type: uri_folder}}", "${{inputs.best}} ${{outputs.scores}}"),
}


def lay_out(folder: Path) -> Path:
    (folder / "data").mkdir()
    for number in (1, 2, 4):
        (folder / f"data/{number}.txt").write_text(str(number))
    for name, (inputs, outputs, arguments) in PORTS.items():
        (folder / f"{name}_src").mkdir()
        (folder / f"{name}_src/main.py").write_text(SCRIPTS[name])
        command = f"python main.py {arguments}"
        (folder / f"{name}.yml").write_text(
            COMPONENT.format(name=name, inputs=inputs, outputs=outputs, command=command)
        )
    (folder / "nested.yml").write_text(NESTED)
    (folder / "pipeline.yml").write_text(PIPELINE)
    return folder / "pipeline.yml"


def test_steps_of_files_commands_a_nested_pipeline_two_branches_and_a_sweep(tmp_path):
    run = run_json(lay_out(tmp_path), *HERE, cwd=tmp_path)
    assert run["exit"] == 0, run
    steps = run["steps"]
    names = ("prep_job", "left_job", "right_job", "nested_job.add", "tune_job", "say_job", "score-job")
    assert set(steps) == set(names)
    # (1 + 2 + 4) rows, twice and three times, added up: 35; the best of x = 1, 4, 2 is 4
    best = json.loads((Path(run["outputs"]["scores"]) / "best.json").read_text())
    assert best == {"x": 4, "score": 140}
    assert len(steps["tune_job"]["trials"]) == 3
    said = Path(steps["say_job"]["outputs"]["said"]).read_text()
    assert said.startswith("HELLO\n")


def test_a_value_from_the_command_line_reaches_the_nested_steps(tmp_path):
    run = run_json(lay_out(tmp_path), *HERE, "rate=10", "right_job.factor=1", cwd=tmp_path)
    assert run["exit"] == 0, run
    assert (Path(run["steps"]["nested_job.add"]["outputs"]["sum"]) / "n").read_text() == "77"

"""Pipelines with steps that only Azure ML can run: notes for those, and every mistake of the wiring all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.spec import read_spec

PIPELINE = """\
type: pipeline
name: watch
version: "1"
inputs:
  rows: {type: mltable}
  limit: {type: number, default: 0.5}
  machine: {type: string, default: Standard_E4s_v3, optional: true}
outputs:
  report: {type: uri_folder, mode: direct}
jobs:
  join:
    type: spark
    component: azureml://registries/theirs/components/join/versions/1
    inputs:
      rows: {type: mltable, path: '${{parent.inputs.rows}}'}
    outputs:
      joined: {type: mltable}
    resources: {instance_type: '${{parent.inputs.machine}}', runtime_version: "3.3"}
    identity: {type: aml_token}
  score:
    type: parallel
    component: azureml:score:1
    inputs:
      rows: ${{parent.jobs.join.outputs.joined}}
    outputs:
      scores: {type: uri_file}
    mini_batch_size: "10KB"
    retry_settings: {timeout: 60, max_retries: 2}
  tell:
    type: command
    component: azureml:tell:1
    compute: ${{parent.inputs.machine}}
    distribution: {type: tensorflow, worker_count: 2}
    inputs:
      scores: {type: uri_folder, path: '${{parent.jobs.score.outputs.scores}}'}
      limit: ${{parent.inputs.limit}}
    outputs:
      report: {type: uri_folder, path: '${{parent.outputs.report}}', mode: direct}
"""

# fmt: off
MISTAKES = [
    ("input of the pipeline", "{{parent.inputs.rows}}", "{{parent.inputs.row}}", "jobs.join.inputs.rows", "the pipeline has no input 'row'. Did you mean 'rows'?"),
    ("step", "jobs.join.", "jobs.jion.", "jobs.score.inputs.rows", "there is no step 'jion'. Did you mean 'join'?"),
    ("output of the pipeline", "outputs.report}}", "outputs.reprot}}", "jobs.tell.outputs.report", "the pipeline has no output 'reprot'. Did you mean 'report'?"),
    ("without parent", "{{parent.inputs.limit}}", "{{inputs.limit}}", "jobs.tell.inputs.limit", "${{inputs.limit}} is for a command; a step binds the pipeline's inputs."),
    ("compute", "compute: ${{parent.inputs.machine}}", "compute: ${{parent.inputs.cluster}}", "jobs.tell.compute", "the pipeline has no input 'cluster'."),
    ("machine", "instance_type: '${{parent.inputs.machine}}'", "instance_type: '${{parent.inputs.size}}'", "jobs.join.resources.instance_type", "the pipeline has no input 'size'."),
    ("key of a step", "worker_count: 2", "workr_count: 2", "jobs.tell.distribution.workr_count", "'workr_count' is not a key of a tensorflow distribution. Did you mean 'worker_count'?"),
    ("cycle", "{{parent.inputs.rows}}", "{{parent.jobs.score.outputs.scores}}", "jobs.join", "the steps wait for each other: join -> score -> join."),
]
# fmt: on


def _read(text: str, folder: Path) -> SpecError:
    (folder / "watch.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        read_spec(folder / "watch.yaml")
    return caught.value


def test_a_sound_pipeline_of_steps_of_a_registry_has_notes_alone(tmp_path: Path) -> None:
    error = _read(PIPELINE, tmp_path)
    assert {problem.severity for problem in error.problems} == {"elsewhere"}, str(error)
    assert [problem.where for problem in error.problems] == [
        "jobs.join.type",
        "jobs.score.component",
        "jobs.tell.component",
    ]
    assert error.warnings == ()


@pytest.mark.parametrize(
    ("right", "wrong", "where", "message"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_the_wiring_of_steps_that_run_elsewhere_is_checked(right, wrong, where, message, tmp_path):
    assert PIPELINE.count(right) == 1
    found = [one for one in _read(PIPELINE.replace(right, wrong), tmp_path).problems if one.severity == "error"]
    assert [one.where for one in found] == [where], found
    assert message in f"{found[0].message} {found[0].hint}"

"""What no process can be started with is the failure of one step: the run is told, and goes on to its end."""

from __future__ import annotations

from allranks.local.folders import RunsHome
from tests.local.support import pipeline, run_json, step

WRITES = """\
type: command
name: writes
outputs: {text: {type: string}}
environment: azureml:whatever:1
command: printf "%s" > ${{outputs.text}}
"""
READS = """\
type: command
name: reads
inputs: {text: {type: string}}
environment: azureml:whatever:1
command: echo '${{inputs.text}}'
"""


def test_a_variable_that_cannot_be_set(tmp_path):
    one = step("env", more="environment_variables: {'A=B': c}")
    result = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n"), cwd=tmp_path)
    assert result["status"] == "failed"
    assert result["steps"]["one"]["failure"]["message"] == "could not be started: illegal environment variable name"
    assert not RunsHome(tmp_path / ".allranks").find("latest").alive

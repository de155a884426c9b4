"""Names of inputs that differ in upper and lower case only are one, as Azure ML takes them, and there is a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allranks.errors import SpecError
from allranks.spec import check_document, read_pipeline
from tests.in_process import allranks

COMPONENT = """\
name: show
type: command
environment: azureml:x:1
inputs: {raw_data: {type: string}, limit: {type: integer, default: 3}}
outputs: {text: {type: uri_file}}
command: echo '${{inputs.RAW_data}} ${{ inputs.limit }}' > ${{outputs.text}}
"""
PIPELINE = """\
type: pipeline
settings: {default_compute: azureml:cpu}
inputs: {Greeting: hello}
jobs:
  first:
    component: ./component.yaml
    inputs: {raw_Data: '${{parent.inputs.greeting}} you'}
  second:
    component: ./component.yaml
    inputs: {raw_data: '${{parent.jobs.first.inputs.Raw_Data}}', LIMIT: 4}
  third:
    type: command
    environment: azureml:x:1
    command: echo '${{inputs.WORD}}' > ${{outputs.text}}
    inputs: {word: '${{parent.inputs.GREETING}}'}
    outputs: {text: {type: uri_file}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "component.yaml").write_text(COMPONENT)
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE)
    return path


def test_a_pipeline_runs_whatever_the_case_of_its_inputs(file):
    done = allranks("run", file, "--json", cwd=file.parent)
    assert done.returncode == 0, done.stdout
    result = json.loads(done.stdout)
    texts = {name: Path(step["outputs"]["text"]).read_text() for name, step in result["steps"].items()}
    assert texts == {"first": "hello you 3\n", "second": "hello you 4\n", "third": "hello\n"}


def test_each_is_a_warning_with_its_line_and_what_to_write(file):
    problems = [one for one in check_document(read_pipeline(file)) if "differ in case" in one.message]
    assert {one.severity for one in problems} == {"warning"}
    assert {(one.line, one.message.split(";")[0], one.hint) for one in problems if one.file == file} == {
        (7, "'raw_Data' is declared as 'raw_data'", "Write raw_data."),
        (7, "'greeting' is declared as 'Greeting'", "Write Greeting."),
        (10, "'Raw_Data' is declared as 'raw_data'", "Write raw_data."),
        (10, "'LIMIT' is declared as 'limit'", "Write limit."),
        (14, "'WORD' is declared as 'word'", "Write word."),
        (15, "'GREETING' is declared as 'Greeting'", "Write Greeting."),
    }
    assert [one.line for one in problems if one.file != file] == [6]


def test_the_exact_name_wins_and_another_name_is_still_wrong(file):
    file.write_text(PIPELINE.replace("LIMIT: 4", "limit: 4, LIMIT: 5"))
    with pytest.raises(SpecError, match="there is no input 'LIMIT'"):
        raise SpecError([one for one in check_document(read_pipeline(file)) if one.severity == "error"])
    file.write_text(PIPELINE.replace("LIMIT", "limits"))
    errors = [one for one in check_document(read_pipeline(file)) if one.severity == "error"]
    assert [one.message for one in errors] == [
        "there is no input 'limits' in 'show'; azure-ai-ml would send the step without it."
    ]


def test_an_inner_pipeline_has_a_parent_of_its_own(file):
    file.with_name("outer.yaml").write_text(
        "type: pipeline\ninputs: {GREETING: outer}\n"
        "jobs: {inner: {type: pipeline, component: ./pipeline.yaml, inputs: {greeting: '${{parent.inputs.greeting}}'}}}\n"
    )
    inner = read_pipeline(file.with_name("outer.yaml")).steps["inner"]
    assert dict(inner.inputs) == {"Greeting": "${{parent.inputs.GREETING}}"}
    assert inner.component.steps["first"].inputs["raw_data"] == "${{parent.inputs.Greeting}} you"

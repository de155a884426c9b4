"""A step takes what another step is given: ``${{parent.jobs.STEP.inputs.NAME}}``."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.spec import Data, Pipeline, check_document, read_spec
from allranks.spec.graph import step_dependencies

TRAIN = """
type: command
name: train
inputs:
  data: {type: uri_folder}
  rate: {type: number, default: 0.5}
  note: {type: string, optional: true}
environment: azureml:e:1
command: echo '${{inputs.data}}' '${{inputs.rate}}' $[['${{inputs.note}}']]
"""
PIPELINE = """
type: pipeline
inputs:
  rows: {type: uri_folder, path: ./rows}
  rate: 0.25
jobs:
  first:
    type: command
    component: ./train.yaml
    inputs: {FIRST}
  second:
    type: command
    component: ./train.yaml
    inputs: {SECOND}
"""


def pipeline(folder: Path, first: str, second: str) -> Pipeline:
    (folder / "rows").mkdir(exist_ok=True)
    (folder / "train.yaml").write_text(TRAIN)
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.replace("FIRST", first).replace("SECOND", second))
    found = read_spec(file)
    assert isinstance(found, Pipeline)
    return found


def taken(name: str) -> str:
    return f"'${{{{parent.jobs.first.inputs.{name}}}}}'"


@pytest.mark.parametrize(
    ("first", "second", "inputs"),
    [
        ("data: {path: ./rows}, rate: 2", "rate", 2),
        ("data: {path: ./rows}, rate: '${{parent.inputs.rate}}'", "rate", "${{parent.inputs.rate}}"),
        ("data: {path: ./rows}", "rate", 0.5),
    ],
    ids=["a literal", "a binding", "the component's default"],
)
def test_a_value_is_taken(tmp_path, first, second, inputs):
    found = pipeline(tmp_path, first, f"data: {taken('data')}, rate: {taken(second)}")
    second_step = found.steps["second"]
    assert second_step.inputs["rate"] == inputs
    assert second_step.inputs["data"] == found.steps["first"].inputs["data"]
    assert step_dependencies(second_step) == (), "it is the value that both have, and nothing that the first makes"
    assert check_document(found) == []


def test_data_keeps_the_mode_that_the_borrower_asks_for(tmp_path):
    found = pipeline(
        tmp_path,
        "data: {type: uri_folder, path: '${{parent.inputs.rows}}', mode: ro_mount}",
        f"data: {{path: {taken('data')}, mode: download}}",
    )
    assert found.steps["second"].inputs["data"] == Data("${{parent.inputs.rows}}", "uri_folder", "download")
    assert check_document(found) == []


def test_part_of_a_text_is_taken_as_text(tmp_path):
    found = pipeline(tmp_path, "data: {path: ./rows}, rate: 2", f"data: {{path: ./rows}}, note: {taken('rate')[:-1]}x'")
    assert found.steps["second"].inputs["note"] == "2x"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("data: {path: ./rows}", taken("rat"), "step 'first' has no input 'rat'. Did you mean 'rate'?"),
        ("data: {path: ./rows}", taken("note"), "step 'first' is given nothing there. Give step 'first' a value"),
        ("data: {path: ./rows}", "'${{parent.jobs.frist.inputs.rate}}'", "there is no step 'frist'. Did you mean"),
        ("data: {path: ./rows}, rate: '${{parent.jobs.second.inputs.rate}}'", taken("rate"), "leads back to itself."),
    ],
)
def test_what_cannot_be_taken_is_explained(tmp_path, first, second, message):
    found = pipeline(tmp_path, first, f"data: {{path: ./rows}}, rate: {second}")
    errors = [str(problem) for problem in check_document(found) if problem.severity == "error"]
    assert any(message in error for error in errors), errors


def test_an_inline_command_takes_the_type_with_the_value(tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "type: pipeline\njobs:\n"
        "  a: {command: 'echo ${{inputs.n}}', environment: azureml:e:1, inputs: {n: 3}}\n"
        "  b: {command: 'echo ${{inputs.n}}', environment: azureml:e:1, inputs: {n: '${{parent.jobs.a.inputs.n}}'}}\n"
    )
    found = read_spec(file)
    assert isinstance(found, Pipeline)
    assert found.steps["b"].component.inputs["n"].type == "integer"

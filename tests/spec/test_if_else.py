"""Mistakes in a step that decides; the SDK refuses the first six, and Azure ML the others once the job is there."""

from __future__ import annotations

import pytest

GOOD = """\
type: pipeline
inputs: {flag: {type: boolean, default: true}}
jobs:
  choose:
    type: if_else
    condition: ${{parent.inputs.flag}}
    true_block: ${{parent.jobs.a}}
    false_block:
      - ${{parent.jobs.b}}
  a: {command: echo, environment: 'azureml:e:1', outputs: {o: {}}}
  b: {command: echo, environment: 'azureml:e:1'}
"""

# fmt: off
MISTAKES = [
    ("    condition: ${{parent.inputs.flag}}\n", "", "jobs.choose", "has no 'condition'. Write ${{parent.jobs.STEP.outputs.NAME}}"),
    ("${{parent.inputs.flag}}", "maybe", "jobs.choose.condition", "'maybe' is neither a boolean nor a binding to one."),
    ("${{parent.inputs.flag}}", "${{inputs.flag}}", "jobs.choose.condition", "'${{inputs.flag}}' is neither a boolean nor"),
    ("${{parent.inputs.flag}}", "[true]", "jobs.choose.condition", "a list is neither a boolean nor"),
    ("    true_block: ${{parent.jobs.a}}\n    false_block:\n      - ${{parent.jobs.b}}\n", "", "jobs.choose", "has neither a true_block nor a false_block."),
    ("- ${{parent.jobs.b}}", "- ${{parent.jobs.a}}", "jobs.choose.false_block", "a: stands in the true_block too."),
    ("- ${{parent.jobs.b}}", "- b", "jobs.choose.false_block", "'b' names no step. Write true_block: ${{parent.jobs.STEP}}"),
    ("parent.jobs.a}}", "parent.jobs.aa}}", "jobs.choose.true_block", "there is no step 'aa'. Did you mean 'a'?"),
    ("parent.inputs.flag", "parent.inputs.flags", "jobs.choose.condition", "the pipeline has no input 'flags'. Did you mean 'flag'?"),
    ("parent.inputs.flag", "parent.jobs.a.outputs.o", "jobs.choose.condition", "takes a boolean, and ${{parent.jobs.a.outputs.o}} is a uri_folder."),
    ("    condition:", "    conditon: 1\n    condition:", "jobs.choose.conditon", "'conditon' is not a key of an if_else step. Did you mean 'condition'?"),
    ("true_block: ${{parent.jobs.a}}", "true_block: ${{parent.jobs.choose}}", "jobs.choose", "the steps wait for each other: choose -> choose."),
    ("outputs: {o: {}}", "outputs: {o: {type: boolean}}", "jobs.a.outputs.o.type", "a step's own output is a file or folder, and no boolean."),
]
# fmt: on


def test_a_step_that_decides_is_no_mistake(problems_of):
    assert problems_of(GOOD) == []


@pytest.mark.parametrize(("right", "wrong", "where", "message"), MISTAKES)
def test_each_mistake_has_its_message(problems_of, right, wrong, where, message):
    assert right in GOOD
    found = [(one.where, f"{one.message} {one.hint}") for one in problems_of(GOOD.replace(right, wrong, 1))]
    assert any(place == where and message in text for place, text in found), found


def test_what_the_step_cannot_have_is_a_warning(problems_of):
    (found,) = problems_of(GOOD.replace("    type: if_else\n", "    type: if_else\n    compute: cpu\n"))
    assert (found.severity, found.where) == ("warning", "jobs.choose.compute")

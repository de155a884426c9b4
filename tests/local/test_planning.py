"""What bindings come to before anything runs: defaults, limits, names of outputs, and values that would end a quote."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from allranks.errors import SpecError, UsageError
from allranks.local.plan import RunPlan
from allranks.local.planning import plan_pipeline
from allranks.local.settings import absolute_values, apply_values
from allranks.local.sweep.search import PlannedSweep
from allranks.spec import check_document, read_pipeline
from tests.local.support import pipeline, step

SAYS = """\
type: command
name: says
inputs: {text: {type: string, default: nothing}}
outputs: {out: {type: uri_folder, mode: upload}}
environment: azureml:whatever:1
command: echo '${{inputs.text}}' > '${{outputs.out}}/text'
"""
INNER = """\
$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json
type: pipeline
name: inner
outputs: {made: {type: uri_folder}, lost: {type: uri_folder}}
jobs:
  say: {component: ./says.yaml, outputs: {out: '${{parent.outputs.made}}'}}
"""


def plan(folder: Path, text: str) -> RunPlan:
    (folder / "says.yaml").write_text(SAYS)
    (folder / "inner.yaml").write_text(INNER)
    return plan_pipeline(read_pipeline(pipeline(folder, text)))


def component(jobs: str, inputs: str) -> str:
    head = (
        "$schema: https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json\ntype: pipeline\nname: p\n"
    )
    return f"{head}inputs: {{{inputs}}}\njobs:\n" + textwrap.indent(textwrap.dedent(jobs), "  ")


def test_a_text_that_is_made_of_others_may_not_end_the_quotes_either(tmp_path):
    """Only values that stood whole in the YAML were looked at: this one ran what stood behind its quote."""
    text = """
        type: pipeline
        inputs: {who: "it's; rm x"}
        jobs:
          say: {component: ./says.yaml, inputs: {text: 'hello ${{parent.inputs.who}}'}}
        """
    with pytest.raises(SpecError, match=r"inputs\.text: .* has a single quote in it"):
        plan(tmp_path, text)
    (problem,) = check_document(read_pipeline(tmp_path / "pipeline.yaml"), values={})  # as a submission does
    assert (problem.severity, problem.where) == ("error", "jobs.say.inputs.text")
    assert problem.message.startswith("'hello it's; rm x' has a single quote")


def test_a_path_may_not_end_the_quotes_of_the_command(tmp_path):
    planned = plan(tmp_path, "type: pipeline\njobs: {say: {component: ./says.yaml}}\n").steps["say"]
    assert planned.command({}, {"out": "/runs"}) == "echo 'nothing' > '/runs/text'"
    with pytest.raises(UsageError, match=r"outputs\.out.*its single quote would end the quoting"):
        planned.command({}, {"out": "/it's here"})


def test_the_default_counts_where_the_input_of_the_pipeline_has_no_value(tmp_path):
    """It was left out, and the command could not be filled in when the steps before it had run."""
    jobs = "say: {component: ./says.yaml, inputs: {text: '${{parent.inputs.text}}'}}"
    planned = plan(tmp_path, component(jobs, "text: {type: string, optional: true}"))
    assert planned.steps["say"].inputs == {"text": "nothing"}


def test_an_output_that_no_step_writes_is_found_before_the_steps_run(tmp_path):
    use = step("ls ${{inputs.d}}", inputs="d: '${{parent.jobs.n.outputs.lost}}'")
    text = f"type: pipeline\njobs: {{n: {{type: pipeline, component: ./inner.yaml}}, use: {use}}}\n"
    with pytest.raises(SpecError, match=r"parent\.jobs\.n\.outputs\.lost.*: no step writes this output"):
        plan(tmp_path, text)


@pytest.mark.parametrize("name", ["say", "n.say"])
def test_what_the_pipeline_says_of_its_output_holds_for_the_step_that_writes_it(tmp_path, name):
    """Its name and mode were without effect: nothing was registered, without a word."""
    job = "{component: ./says.yaml, outputs: {out: '${{parent.outputs.kept}}'}}"
    if name != "say":
        job = "{type: pipeline, component: ./inner.yaml, outputs: {made: '${{parent.outputs.kept}}'}}"
    kept = "{type: uri_folder, mode: rw_mount, name: mine, version: '3'}"
    text = f"type: pipeline\noutputs: {{kept: {kept}}}\njobs: {{{name.partition('.')[0]}: {job}}}\n"
    found = plan(tmp_path, text).steps[name].outputs["out"]
    assert (found.mode, found.asset_name, found.asset_version) == ("rw_mount", "mine", "3")


def test_a_name_that_no_asset_can_have_is_refused_before_the_step_runs(tmp_path):
    one = step("true", outputs="out: {type: uri_folder, name: my model}")
    with pytest.raises(SpecError, match="output out: 'my model' is no name for an asset"):
        plan(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n")


@pytest.mark.parametrize("key", ["on_init", "on_finalize"])
def test_a_step_that_comes_before_or_after_all_others_is_refused(tmp_path, key):
    """It ran like any other, in whatever order, and not at all after a failure."""
    text = f"type: pipeline\nsettings: {{{key}: one}}\njobs: {{one: {step('true')}}}\n"
    with pytest.raises(SpecError, match=rf"settings\.{key}: cannot run here"):
        plan(tmp_path, text)


def test_a_value_that_is_not_utf_8_is_refused(tmp_path):
    """A second after the start it was a traceback, since no page could hold it."""
    (tmp_path / "says.yaml").write_text(SAYS)
    text = "type: pipeline\njobs: {say: {component: ./says.yaml}}\n"
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        apply_values(read_pipeline(pipeline(tmp_path, text)), {"text": "a\udcff"})


def test_a_text_of_the_user_that_looks_like_a_name_of_the_search_space_stays_what_it_is(tmp_path):
    """Of a name that is not searched it was a KeyError when the first trial began."""
    text = """
        type: pipeline
        inputs: {text: "${{search_space.other}}"}
        jobs:
          tune:
            type: sweep
            trial: ./says.yaml
            inputs: {text: '${{parent.inputs.text}}'}
            sampling_algorithm: grid
            search_space: {rate: {type: choice, values: [1]}}
            objective: {goal: maximize, primary_metric: accuracy}
            limits: {max_total_trials: 1}
        """
    (tmp_path / "says.yaml").write_text(SAYS.replace("nothing}}", "nothing}, rate: {type: integer, default: 2}}"))
    planned = plan_pipeline(read_pipeline(pipeline(tmp_path, text))).steps["tune"]
    assert isinstance(planned, PlannedSweep)
    assert planned.trial(0, {"rate": 1}).literals == {"text": "${{search_space.other}}", "rate": "1"}


def test_no_path_is_not_the_working_folder(tmp_path):
    """`data=$DATA` of a variable that is not set gave the step the folder in which one happened to be."""
    jobs = "say: {component: ./reads.yaml, inputs: {data: '${{parent.inputs.data}}'}}"
    (tmp_path / "reads.yaml").write_text(SAYS.replace("{text:", "{data: {type: uri_folder}, text:"))
    read = read_pipeline(pipeline(tmp_path, component(jobs, "data: {type: uri_folder}")))
    given = absolute_values(read, {"data": "", "say.data": "here"})
    assert given == {"data": "", "say.data": str(Path("here").resolve())}
    (problem,) = apply_values(read, given)[1]
    assert problem.message == "is empty: a path is missing behind the =."

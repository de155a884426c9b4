"""Steps that decide: which block runs, what becomes of the steps around the other one, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local.support import allranks, pipeline, run_json, step

CHECK = """\
type: command
name: check
inputs: {n: {type: integer}}
outputs: {large: {type: boolean, is_control: true}}
environment: azureml:whatever:1
command: "%s"
"""
WRITES = "test ${{inputs.n}} -gt 2 && echo True > ${{outputs.large}} || echo false > ${{outputs.large}}"
JOIN = """\
type: command
name: join
inputs: {a: {type: uri_folder, optional: true}, b: {type: uri_folder, optional: true}}
outputs: {model: {type: uri_folder}}
environment: azureml:whatever:1
command: "cat $[[${{inputs.a}}/m]] $[[${{inputs.b}}/m]] > ${{outputs.model}}/chosen"
"""


def branching(folder: Path, condition: str = "${{parent.jobs.check.outputs.large}}", writes: str = WRITES) -> Path:
    (folder / "check.yaml").write_text(CHECK % writes)
    (folder / "join.yaml").write_text(JOIN)
    made = {
        name: step(f"echo {name} > ${{{{outputs.m}}}}/m", outputs="m: {type: uri_folder}") for name in ("big", "small")
    }
    return pipeline(
        folder,
        f"""
        type: pipeline
        inputs: {{n: 3, flag: {{type: boolean, default: false}}}}
        outputs: {{model: {{type: uri_folder}}}}
        jobs:
          check: {{component: ./check.yaml, inputs: {{n: '${{{{parent.inputs.n}}}}'}}}}
          choose:
            type: if_else
            condition: {condition}
            true_block: ${{{{parent.jobs.big}}}}
            false_block: ['${{{{parent.jobs.small}}}}']
          big: {made["big"]}
          small: {made["small"]}
          only_small: {step("cat ${{inputs.m}}/m", inputs="m: '${{parent.jobs.small.outputs.m}}'")}
          join:
            component: ./join.yaml
            inputs: {{a: '${{{{parent.jobs.big.outputs.m}}}}', b: '${{{{parent.jobs.small.outputs.m}}}}'}}
            outputs: {{model: '${{{{parent.outputs.model}}}}'}}
        """,
    )


@pytest.mark.parametrize(("n", "taken", "other"), [(3, "big", "small"), (1, "small", "big")])
def test_one_block_runs_and_what_reads_from_the_other_alone_does_not(tmp_path, n, taken, other):
    result = run_json(branching(tmp_path), f"n={n}", cwd=tmp_path)
    assert (result["exit"], result["status"]) == (0, "succeeded"), result
    statuses = {name: one["status"] for name, one in result["steps"].items()}
    assert (statuses[taken], statuses[other]) == ("succeeded", "not taken")
    assert statuses["only_small"] == statuses["small"]
    assert result["steps"]["choose"]["decision"] is (n > 2)
    assert Path(result["outputs"]["model"], "chosen").read_text() == f"{taken}\n"
    assert result["steps"][other]["outputs"] == {}


def test_the_decision_is_shown_and_is_taken_anew_from_reused_outputs(tmp_path):
    file = branching(tmp_path)
    shown = allranks("run", file, cwd=tmp_path)
    assert "choose: succeeded, the condition is true\n" in shown.stdout, shown
    assert "small: not taken\n" in shown.stdout
    listed = allranks("runs", "show", "latest", cwd=tmp_path).stdout
    assert "the condition is true" in listed
    assert "not taken" in listed
    page = next(tmp_path.glob(".allranks/runs/*/report.html")).read_text()
    assert 'class="not-taken"' in page
    assert "if_else: true" in page
    again = run_json(file, cwd=tmp_path)
    assert {name for name, one in again["steps"].items() if one["reused"]} == {"check", "big", "join"}
    assert again["steps"]["choose"]["decision"] is True


@pytest.mark.parametrize(
    ("condition", "options", "taken"),
    [
        ("'${{parent.inputs.flag}}'", (), "small"),
        ("'${{parent.inputs.flag}}'", ("flag=true",), "big"),
        ("true", (), "big"),
    ],
)
def test_a_condition_may_be_known_before_anything_runs(tmp_path, condition, options, taken):
    result = run_json(branching(tmp_path, condition), *options, cwd=tmp_path)
    assert Path(result["outputs"]["model"], "chosen").read_text() == f"{taken}\n"


def test_mldesigner_writes_a_decision_into_a_folder_that_is_there(tmp_path):
    writes = "mkdir ${{outputs.large}}; echo ${{inputs.n}} > ${{outputs.large}}/log; printf False > ${{outputs.large}}/output"
    result = run_json(branching(tmp_path, writes=writes), cwd=tmp_path)
    assert result["steps"]["choose"]["decision"] is False


@pytest.mark.parametrize(
    ("writes", "why"),
    [
        (
            "echo perhaps > ${{outputs.large}}",
            "its input condition is the output large of check: 'perhaps' is not a boolean.",
        ),
        (
            "mkdir ${{outputs.large}}",
            "its input condition is the output large of check: no text of at most 65,536 characters was written",
        ),
    ],
)
def test_a_condition_that_is_no_boolean_fails_the_step_that_decides(tmp_path, writes, why):
    result = run_json(branching(tmp_path, writes=writes), cwd=tmp_path)
    assert (result["exit"], result["status"]) == (1, "failed")
    assert result["steps"]["choose"]["failure"]["message"].startswith(why)
    assert {result["steps"][name]["status"] for name in ("big", "small", "join")} == {"skipped"}


def test_a_nested_pipeline_is_taken_or_not_as_a_whole_and_a_branch_in_it_decides_for_itself(tmp_path):
    inner = branching(tmp_path).rename(tmp_path / "inner.yaml")
    inner.write_text(
        inner.read_text().replace(
            "inputs: {n: 3, flag: {type: boolean, default: false}}", "inputs: {n: {type: integer, default: 1}}"
        )
    )
    outer = """
        type: pipeline
        jobs:
          which: {{type: if_else, condition: {condition}, true_block: '${{{{parent.jobs.inner}}}}'}}
          inner: {{type: pipeline, component: ./inner.yaml, inputs: {{n: 1}}}}
        """
    not_taken = run_json(pipeline(tmp_path, outer.format(condition="false")), cwd=tmp_path)["steps"]
    assert {one["status"] for name, one in not_taken.items() if name != "which"} == {"not taken"}
    taken = run_json(pipeline(tmp_path, outer.format(condition="true")), cwd=tmp_path)["steps"]
    assert (taken["inner.small"]["status"], taken["inner.big"]["status"]) == ("succeeded", "not taken")


def test_a_literal_that_a_step_writes_is_given_as_a_value(tmp_path):
    (tmp_path / "check.yaml").write_text(CHECK % WRITES)
    (tmp_path / "say.yaml").write_text(
        "type: command\nname: say\ninputs: {large: {type: boolean}}\nenvironment: azureml:e:1\ncommand: echo it is ${{inputs.large}}\n"
    )
    file = pipeline(
        tmp_path,
        """
        type: pipeline
        jobs:
          check: {component: ./check.yaml, inputs: {n: 3}}
          say: {component: ./say.yaml, inputs: {large: '${{parent.jobs.check.outputs.large}}'}}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert Path(result["steps"]["say"]["folder"], "user_logs", "std_log.txt").read_text() == "it is True\n"

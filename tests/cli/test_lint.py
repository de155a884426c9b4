from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOOD = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json
type: command
name: greet
version: "1"
inputs:
  times: {type: integer, default: 1, min: 1}
environment: azureml:allranks-pytorch:0.1.0
command: >-
  echo '${{inputs.times}}'
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "greet.yaml").write_text(GOOD)
    return tmp_path


def test_the_library_itself_is_clean(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    called = cli("lint")
    assert called.out.endswith("documents of the library checked, nothing wrong\n"), called.out
    assert called.code == 0


def test_all_problems_at_once_with_file_and_line(cli: Callable[..., Any], tree: Path) -> None:
    (tree / "greet.yaml").write_text(GOOD.replace("default: 1", "default: 0").replace("inputs.times", "inputs.tmies"))
    called = cli("lint", "greet.yaml")
    assert called.code == 2
    *problems, summary = called.out.splitlines()
    assert summary == "1 document checked, 2 errors, 1 warning"
    errors = [problem for problem in problems if not problem.startswith("warning: ")]
    assert [error.split(": ")[:2] for error in errors] == [
        ["greet.yaml:6", "inputs.times.default"],
        ["greet.yaml:8", "command"],
    ]
    document = cli("lint", "greet.yaml", "--json").json
    assert document["errors"] == 2
    assert set(document["problems"][0]) == {"file", "line", "where", "message", "hint", "severity"}


def test_a_folder_is_searched_for_components_and_pipelines_alone(cli: Callable[..., Any], tree: Path) -> None:
    (tree / "conda.yaml").write_text("dependencies: [python]\n")
    (tree / "cluster.yaml").write_text("type: amlcompute\nname: gpu\n")
    (tree / ".hidden").mkdir()
    (tree / ".hidden" / "greet.yaml").write_text("jobs:\n")
    (tree / "broken.yml").write_text("type: pipeline\njobs: [\n")
    called = cli("lint", ".", "--json")
    assert called.json["checked"] == ["broken.yml", "greet.yaml"]
    assert called.code == 2


def test_a_problem_of_a_shared_component_is_told_once(cli: Callable[..., Any], tree: Path) -> None:
    (tree / "greet.yaml").write_text(GOOD.replace("default: 1", "default: 0"))
    pipeline = "type: pipeline\nname: both\njobs:\n  a: {type: command, component: ./greet.yaml}\n"
    (tree / "both.yaml").write_text(pipeline + "  b: {type: command, component: ./greet.yaml}\n")
    assert cli("lint", ".", "--json").json["errors"] == 1


def test_a_component_of_a_workspace_is_checked_by_its_stand_in(cli: Callable[..., Any], tree: Path) -> None:
    steps = "  a: {type: command, component: 'azureml:theirs:1', inputs: {times: 0}}\n"
    (tree / "theirs.yaml").write_text(f"type: pipeline\njobs:\n{steps}")
    assert "--map azureml:theirs:1=PATH" in cli("lint", "theirs.yaml").out
    called = cli("lint", "theirs.yaml", "--map", "azureml:theirs:1=greet.yaml")
    assert "theirs.yaml:3: jobs.a.inputs.times" in called.out
    (tree / "allranks-map.yaml").write_text("azureml:theirs:1: greet.yaml\n")
    assert cli("lint", "theirs.yaml").out == called.out


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing.yaml", "there is no file 'nothing.yaml'.\n"),
        ("gret.yaml", "there is no file 'gret.yaml' (did you mean 'greet.yaml'?)"),
        ("loop.yaml", "'loop.yaml' is a link that leads to no file"),
        ("train_dpp", "is no file, no folder and no name of the library (did you mean 'train_ddp'?)"),
        ("empty", "no component or pipeline YAML in"),
        ("notes.txt", "is not a YAML file"),
        ("pipeline.py", "pipeline.py:FUNCTION"),
    ],
)
def test_wrong_paths(cli: Callable[..., Any], tree: Path, path: str, message: str) -> None:
    (tree / "empty").mkdir()
    (tree / "notes.txt").touch()
    (tree / "loop.yaml").symlink_to("loop.yaml")
    (tree / "pipeline.py").touch()
    called = cli("lint", path)
    assert called.code == 2
    assert message in called.err


ELSEWHERE = {
    "a component of a loop": "type: flow\nname: join\nversion: 0.1.0\n",
    "a prompt flow": "type: pipeline\njobs:\n  t: {type: parallel, component: {$schema: promptflow/latest/Flow.schema.json, nodes: []}}\n",
    "an AutoML component": "type: automl\nname: choose\nversion: 0.1.0\ntask: text_ner\n",
    "a component of a registry": "type: pipeline\njobs:\n  t: {component: azureml://registries/theirs/components/train/versions/0.1.y4}\n",
    "a Spark step": "type: pipeline\njobs:\n  t: {type: spark, component: azureml:join:1, compute: pool}\n",
    "a step that uses a Spark component": "type: pipeline\njobs:\n  t: {type: spark, component: ./other.yaml}\n",
    "a copy": "type: pipeline\njobs:\n  t: {type: data_transfer, task: copy_data, inputs: {}}\n",
    "a Spark component": "type: spark\nname: join\nentry: {file: join.py}\n",
    "a data_transfer component": "type: data_transfer\nname: join\ntask: import_data\n",
    "a schedule": "$schema: https://azuremlschemas.azureedge.net/latest/schedule.schema.json\ncreate_job: ./job.yml\n",
    "a loop": "type: pipeline\njobs:\n  t: {type: do_while, body: '${{parent.jobs.s}}'}\n",
    "code of a job in git": "type: pipeline\njobs:\n  t: {command: echo, environment: 'azureml:e:1', code: 'git+https://example.com/repository'}\n",
}


@pytest.mark.parametrize("text", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_only_azure_ml_runs_is_a_note_and_no_mistake(cli: Callable[..., Any], tree: Path, text: str) -> None:
    (tree / "greet.yaml").unlink()
    (tree / "theirs").mkdir()
    (tree / "theirs" / "spec.yaml").write_text(text)
    called = cli("lint", ".")
    *notes, summary = called.out.splitlines()
    assert (called.code, summary) == (0, "1 document checked, nothing wrong"), called.out
    assert [note.startswith("note: theirs/spec.yaml:") for note in notes] == [True], notes
    assert "cannot run here" in notes[0]


def test_an_output_that_steers_a_branch_is_no_mistake(cli: Callable[..., Any], tree: Path) -> None:
    outputs = "outputs:\n  good: {type: boolean, is_control: true}\n"
    (tree / "greet.yaml").write_text(
        GOOD.replace("environment:", outputs + "environment:") + "  > '${{outputs.good}}'\n"
    )
    called = cli("lint", "greet.yaml")
    assert (called.code, called.out) == (0, "1 document checked, nothing wrong\n")


def test_a_text_that_the_shell_would_read_is_named_with_the_quotes_that_it_lacks(
    cli: Callable[..., Any], tree: Path
) -> None:
    text = GOOD.replace("  times: {type: integer, default: 1, min: 1}\n", BARE_INPUTS)
    command = "run --a ${{inputs.a}} --b '${{inputs.b}}' --c \"${{inputs.c}}\" --d ${{inputs.d}} --e ${{inputs.e}}"
    command += " $[[--f ${{inputs.f}}]] --g ${{inputs.g}}"
    (tree / "greet.yaml").write_text(text.replace("echo '${{inputs.times}}'", command))
    (tree / "twice.yaml").write_text(
        "type: pipeline\njobs:\n  one: {type: command, component: ./greet.yaml, inputs: {g: ./}}\n"
        "  two: {type: command, component: ./greet.yaml, inputs: {g: ./}}\n"
    )
    called = cli("lint", "greet.yaml", "twice.yaml")
    assert called.code == 0
    warning, summary = called.out.splitlines()
    assert warning.startswith("warning: greet.yaml:14: command: texts stand bare in the command: a, f. A shell reads")
    assert warning.endswith("Write '${{inputs.a}}', in single quotes: between double ones $(...) still runs.)")
    assert summary == "2 documents checked, 0 errors, 1 warning"


BARE_INPUTS = """\
  a: {type: string, default: x}
  b: {type: string, default: x}
  c: {type: string, default: x}
  d: {type: string, default: x, enum: [x, y]}
  e: {type: number, default: 1}
  f: {type: string, optional: true}
  g: {type: uri_folder}
"""


JOB = "$schema: https://azuremlschemas.azureedge.net/latest/pipelineJob.schema.json\ntype: pipeline\n"
STEP = "jobs:\n  a: {type: command, component: ./greet.yaml}\n"


@pytest.mark.parametrize(
    ("top", "errors"),
    [
        (JOB, ["settings: no compute is stated for a; Azure ML refuses this."]),
        (JOB + "compute: azureml:cpu\n", []),
        (JOB + "settings: {default_compute: serverless}\n", []),
        ("type: pipeline\n", []),
    ],
)
def test_a_pipeline_job_says_where_it_runs(cli: Callable[..., Any], tree: Path, top: str, errors: list[str]) -> None:
    (tree / "job.yaml").write_text(top + STEP)
    found = cli("lint", "job.yaml", "--json").json["problems"]
    assert [f"{one['where']}: {one['message']}" for one in found if one["severity"] == "error"] == errors
    if errors:
        assert cli("run", "job.yaml", "--dry-run").code == 0, "submit --compute says it, and a local run needs none"


def test_a_signature_in_the_yaml_is_not_shown(cli: Callable[..., Any], tree: Path) -> None:
    address = "https://some.test/c?sv=1&sig=SEEN%3D"
    data = f"data: {{type: uri_folder, path: '{address}'}}"
    (tree / "job.yaml").write_text(
        f"type: pipeline\ninputs: {{{data}}}\n{STEP}".replace(
            "greet.yaml", f"greet.yaml, inputs: {{times: '{address}'}}"
        )
    )
    for command in (("lint", "job.yaml"), ("show", "job.yaml")):
        for called in (cli(*command), cli(*command, "--json")):
            assert "sig=***" in called.out
            assert "SEEN" not in called.out + called.err

"""What no process can be started with is the failure of one step: the run is told, and goes on to its end."""

from __future__ import annotations

from pathlib import Path

from allranks.local.folders import RunsHome
from tests.local.support import allranks, pipeline, run_json, step

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


def test_a_literal_output_that_no_command_can_have(tmp_path: Path) -> None:
    """A NUL ended the engine in a traceback; a single quote ended the quotes, and what stood behind it was run."""
    (tmp_path / "nul.yaml").write_text(WRITES % r"a\0b")
    (tmp_path / "quote.yaml").write_text(WRITES % "x'; touch $PWD/../run; echo '")
    (tmp_path / "reads.yaml").write_text(READS)
    jobs = "\n".join(
        f"  {kind}: {{component: ./{kind}.yaml}}\n"
        f"  after_{kind}: {{component: ./reads.yaml, inputs: {{text: '${{{{parent.jobs.{kind}.outputs.text}}}}'}}}}"
        for kind in ("nul", "quote")
    )
    steps = run_json(pipeline(tmp_path, f"type: pipeline\njobs:\n{jobs}\n"), cwd=tmp_path)["steps"]
    said = {name: one["failure"]["message"] for name, one in steps.items() if one["failure"]}
    assert said.keys() == {"after_nul", "after_quote"}
    assert "no text of at most 65,536 characters was written there" in said["after_nul"]
    assert "has a single quote in it" in said["after_quote"]


def test_a_runs_folder_whose_path_has_a_single_quote(tmp_path: Path) -> None:
    """All components of the library quote their paths, of which bash would see an end in the middle."""
    one = step("echo 1 > '${{outputs.out}}/a'", outputs="out: {type: uri_folder}")
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {one}}}\n")
    result = run_json(file, "--runs-dir", tmp_path / "it's here", cwd=tmp_path)
    assert result["exit"] == 0, result["steps"]["one"]["failure"]
    assert (Path(result["steps"]["one"]["outputs"]["out"]) / "a").read_text() == "1\n"
    assert allranks("run", file, "--runs-dir", tmp_path / "it's there", "--dry-run", cwd=tmp_path).returncode == 0

"""``--resume``: the run that it names, from anywhere, whatever has become of the files that it was started from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.support import allranks, environ, pipeline, run_json, step

SAY = step(
    "cat ${{inputs.data}}/word; echo ${{inputs.word}}; test -e ${{inputs.data}}/ready",
    inputs="data: '${{parent.inputs.data}}', word: '${{parent.inputs.word}}'",
)
TEXT = f"""
type: pipeline
inputs:
  data: {{type: uri_folder, path: ./nothing}}
  word: {{type: string, default: none}}
jobs:
  first: {step("echo done > ${{outputs.out}}", outputs="out: {type: uri_file}")}
  say: {SAY}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a pipeline, code of its own and data, and one failed run of it in ``../runs``."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "nothing").mkdir()
    (folder / "data" / "word").write_text("mine\n")
    pipeline(folder, TEXT)
    given = ["pipeline.yaml", "data=data", "word=hello", "--runs-dir", "../runs", "--retries", "1"]
    assert run_json(*given, cwd=folder)["exit"] == 1
    (folder / "data" / "ready").touch()
    return folder


def log(run: dict[str, Any], name: str = "say") -> str:
    return (Path(run["steps"][name]["folder"]) / "user_logs" / "std_log.txt").read_text()


def test_from_another_folder_with_a_file_of_the_same_name(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "data").mkdir(parents=True)
    pipeline(other, f"type: pipeline\njobs: {{decoy: {step('true')}}}\n")
    resumed = run_json("--resume", "latest", "--runs-dir", tmp_path / "runs", "word=changed", cwd=other)
    assert (resumed["exit"], list(resumed["steps"])) == (0, ["first", "say"])
    assert resumed["steps"]["first"]["reused"]
    assert log(resumed) == "mine\nchanged\n", "the data of the first run's folder, and the value that was given again"
    kept = json.loads((Path(resumed["run_dir"]) / "run.json").read_text())
    assert (kept["retries"], kept["target"]) == (1, "pipeline.yaml"), "what was not given again is as it was"


def test_an_edited_file_counts_and_is_named(project: Path) -> None:
    file = project / "pipeline.yaml"
    again = ["run", "--resume", "latest", "--runs-dir", "../runs", "--dry-run"]
    assert "changed" not in allranks(*again, cwd=project).stderr
    file.write_text(file.read_text().replace("echo ${{inputs.word}}", "echo mended ${{inputs.word}}"))
    done = allranks(*again[:-1], cwd=project)
    assert done.returncode == 0, done.stderr
    assert "pipeline.yaml has changed since that run" in done.stderr
    shown = allranks("runs", "logs", "latest", "say", "--runs-dir", "../runs", cwd=project)
    assert "mended hello" in shown.stdout


def test_files_that_are_gone_are_taken_from_the_run(project: Path, tmp_path: Path) -> None:
    code = project / "code"
    code.mkdir()
    (code / "say.sh").write_text("echo from the code; test -e $1/ready\n")
    text = f"type: pipeline\njobs: {{say: {step('sh say.sh ' + str(project / 'data'), more='code: ./code')}}}\n"
    file = pipeline(project, text, "coded.yaml")
    (project / "data" / "ready").unlink()
    assert run_json(file, "--runs-dir", "../runs", cwd=project)["exit"] == 1
    (project / "data" / "ready").touch()
    file.unlink()
    shutil.rmtree(code)
    resumed = allranks("run", "--resume", "latest", "--runs-dir", "../runs", cwd=project)
    assert resumed.returncode == 0, resumed.stderr
    assert "coded.yaml is not there any more" in resumed.stderr
    assert "code of say" in resumed.stderr
    shown = allranks("runs", "logs", "latest", "say", "--runs-dir", "../runs", cwd=project)
    assert shown.stdout == "from the code\n"


PYTHON = """
import sys
import allranks
from azure.ai.ml import command
from azure.ai.ml.dsl import pipeline
from azure.ai.ml.entities import Environment

say = command(name="say", command="echo '${{inputs.word}}'; test -e FLAG", inputs={"word": "none"},
              environment=Environment(image="x"))

@pipeline(name="image_classification", default_compute="cpu")
def image_classification(word: str):
    say(word=word)

result = allranks.run(image_classification("hello"), retries=1, runs_dir="runs")
print(result.run_id, result.status)
"""


def test_a_pipeline_from_python_is_itself_and_not_the_library_s_of_that_name(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    script = PYTHON.replace("FLAG", str(flag))
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environ(), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1].endswith(" failed"), done.stdout + done.stderr
    flag.touch()
    resumed = run_json("--resume", "latest", "--runs-dir", "runs", cwd=tmp_path)
    assert (resumed["exit"], list(resumed["steps"])) == (0, ["say"])
    assert log(resumed) == "hello\n"
    first = min((tmp_path / "runs" / "runs").iterdir())
    (first / "request.json").unlink()
    refused = allranks("run", "--resume", first.name, "--runs-dir", "runs", cwd=tmp_path)
    assert refused.returncode == 2
    assert "cannot be resumed: its request.json is not there" in refused.stderr


def test_a_run_without_reuse_reuses_its_own_steps_when_it_resumes(tmp_path: Path) -> None:
    count = f"echo x >> {tmp_path}/count; echo 1 > ${{{{outputs.out}}}}"
    last = "cat ${{inputs.it}}; test -e " + str(tmp_path / "ready")
    text = f"""
    type: pipeline
    jobs:
      one: {step(count, outputs="out: {type: uri_file}")}
      two: {step(last, inputs="it: '${{parent.jobs.one.outputs.out}}'")}
    """
    file = pipeline(tmp_path, text)
    counted = tmp_path / "count"
    run_json(file, cwd=tmp_path)
    run_json(file, "--no-cache", cwd=tmp_path)
    assert counted.read_text() == "x\nx\n"
    (tmp_path / "ready").touch()
    resumed = run_json("--resume", "latest", cwd=tmp_path)
    assert resumed["exit"] == 0
    assert counted.read_text() == "x\nx\n", "what that run had finished is not done again"
    plan = run_json(file, "--dry-run", "--no-cache", cwd=tmp_path)
    assert not plan["steps"]["one"]["reused"]

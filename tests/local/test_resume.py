"""``--resume``: the run that it names, from anywhere, whatever has become of the files that it was started from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.local.folders import RunsHome
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


@pytest.mark.slow
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


SHOWS = """\
import sys
print("given", sys.argv[1:], "by", sys.executable)
"""
CHANGED = {
    "--scale": (["--scale", "1x2", "--distribution", "pytorch"], "on 2 ranks, 1 node x 2"),
    "--distribution": (["--distribution", "pytorch", "--dry-run"], "runs with distribution pytorch: as asked for"),
    "--code": (["--code", ".", "--dry-run"], "  python src/shows.py --a 1"),
    "--python": (["--python", "*=PYTHON"], "given ['--a', '1'] by PYTHON"),
    "--environment": (["--environment", "*=pytorch", "--dry-run"], "with --environment '*=pytorch': allranks run"),
    "--map": (["--map", "azureml:mnist=src"], "with --map azureml:mnist=FOLDER/src: allranks run src/shows.py --map"),
    "--retries": (["--retries", "2"], "with --retries 2: allranks run"),
    "--steps": (["--steps", "shows"], "with --steps shows: allranks run"),
    "--logs": (["--logs", "none"], "succeeded in"),
    "--events": (["--events"], '"event": "run_started"'),
    "--json": (["--json"], '"status": "succeeded"'),
    "--dry-run": (["--dry-run"], "shows: 1 x 1, would run"),
    "--no-cache": (["--no-cache"], "with --no-cache: allranks run src/shows.py --no-cache -- --a 1"),
    "target": (["src/shows.py"], "given ['--a', '1']"),
    "arguments": (["--", "--a", "2", "b"], "given ['--a', '1', '--a', '2', 'b']"),
}
REFUSED = {
    "values": (["a=2"], "a: a script has no inputs, it takes arguments.\nhint: Write them as for python: -- --a 2,"),
    "-m": (["-m", "shows"], "was a run of 'src/shows.py', not of '-m shows'."),
    "--command": (["--command", "ls"], "was a run of 'src/shows.py', not of 'ls'."),
    "target": (["other.py"], "was a run of 'src/shows.py', not of 'other.py'."),
    "--distribution": (["--distribution", "torch"], "'torch' is none of"),
    "--code": (["--code", "elsewhere"], "does not hold the script 'src/shows.py'"),
    "--scale": (["--scale", "1x2"], "runs as one process"),
    "--steps": (["--steps", "lost"], "'lost' is no step"),
    "--python": (["--python", "lost=PYTHON"], "'lost' is no step"),
    "--environment": (["--environment", "shows=lost"], "'lost' is no environment"),
    "--map": (["--map", "azureml:mnist=lost"], "which does not exist"),
    "--retries": (["--retries", "-1"], "--retries -1 is less than 0"),
    "--containers": (["--containers", "podman", "--python", "shows=PYTHON"], "in a container the image counts"),
    "--keep-checkpoints": (["--keep-checkpoints", "--no-cache"], "without --no-cache"),
    "--runs-dir": (["--runs-dir", "src"], "there are no runs in"),
    "--events": (["--events", "a=2"], "a: a script has no inputs"),
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of a script, ``src/shows.py -- --a 1``."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "src").mkdir()
    (folder / "src/shows.py").write_text(SHOWS)
    assert allranks("run", "src/shows.py", "--", "--a", "1", cwd=folder).returncode == 0
    return folder


def resume_first(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Resume the oldest run of a folder."""
    first = min(path.name for path in (folder / ".allranks/runs").iterdir())
    given = [one.replace("PYTHON", sys.executable) for one in arguments]
    return allranks("run", "--resume", first, *given, cwd=folder)


@pytest.mark.parametrize(("arguments", "shown"), CHANGED.values(), ids=CHANGED)
def test_whatever_is_given_again_counts(script: Path, arguments: list[str], shown: str) -> None:
    done = resume_first(script, arguments)
    assert done.returncode == 0, done.stderr
    expected = shown.replace("PYTHON", sys.executable).replace("FOLDER", str(script))
    assert expected in done.stdout + done.stderr


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_given_again_is_refused(script: Path, arguments: list[str], message: str) -> None:
    before = set((script / ".allranks/runs").iterdir())
    done = resume_first(script, arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert set((script / ".allranks/runs").iterdir()) == before


def test_other_targets_refuse_what_only_a_script_takes(project: Path) -> None:
    for given, name in ((["--", "--a", "2"], "arguments"), (["--distribution", "mpi"], "distribution")):
        done = allranks("run", "--resume", "latest", "--runs-dir", "../runs", *given, cwd=project)
        assert (done.returncode, f"{name}: only a script takes this" in done.stderr) == (2, True), done.stderr
    done = allranks("run", "--resume", "latest", "--runs-dir", "../runs", "word=b", "say.word=c", cwd=project)
    assert (
        f"with word=b, say.word=c in place of word=hello: allranks run pipeline.yaml data={project}/data" in done.stderr
    )
    shown = allranks("runs", "logs", "latest", "say", "--runs-dir", "../runs", cwd=project)
    assert shown.stdout == "mine\nc\n"


TRAINS = """\
import pathlib, sys
place = pathlib.Path(sys.argv[1])
place.mkdir(exist_ok=True)
epoch = place / "epoch-0.txt"
start = len(list(place.glob("epoch-*.txt")))
print("starts at epoch", start)
for number in range(start, 4):
    if number == 2:
        sys.exit("a bug")
    (place / f"epoch-{number}.txt").write_text(str(number))
"""
MENDED = TRAINS.replace("number == 2", "number == 9")
COMPONENT = """\
name: train
version: "1"
type: command
code: .
command: python train.py ${{outputs.checkpoints}} ${{inputs.lr}}
environment: {image: x}
inputs: {lr: {type: number, default: 1}}
outputs: {checkpoints: {type: uri_folder, mode: rw_mount}}
"""


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    """A folder with a component of the user's own, and a run of it that failed after two epochs."""
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "component.yaml").write_text(COMPONENT)
    done = allranks("run", "component.yaml", cwd=tmp_path)
    assert (done.returncode, "starts at epoch 0" in done.stdout) == (1, True), done.stderr
    saved = next(tmp_path.glob(".allranks/work/*/outputs/checkpoints/epoch-1.txt"))
    assert f"train saved      {saved}; --keep-checkpoints starts from that even if train changes\n" in done.stdout
    return tmp_path


def test_the_same_code_resumes_from_its_checkpoint(failed: Path) -> None:
    done = resume_first(failed, [])
    assert (done.returncode, "starts at epoch 2" in done.stdout) == (1, True), done.stderr
    assert "note: step train resumes from " in done.stderr
    assert "/outputs/checkpoints/epoch-1.txt.\n" in done.stderr


def test_mended_code_starts_anew_and_is_offered_the_checkpoint(failed: Path) -> None:
    (failed / "train.py").write_text(MENDED)
    first = min(path.name for path in (failed / ".allranks/runs").iterdir())
    begun = resume_first(failed, [])
    assert (begun.returncode, "starts at epoch 0" in begun.stdout) == (0, True), begun.stderr
    why = f"note: step train starts from the beginning: its code (train.py) changed since run {first}. It saved "
    assert why in begun.stderr
    offer = begun.stderr.partition("to start from that: allranks ")[2].splitlines()[0]
    assert offer == f"run --resume {first} --keep-checkpoints"
    kept = allranks(*offer.split(), cwd=failed)
    assert (kept.returncode, "starts at epoch 2" in kept.stdout) == (0, True), kept.stderr
    assert f"although its code (train.py) changed since run {first}.\n" in kept.stderr
    written = next(failed.glob(".allranks/work/*/outputs/checkpoints"))
    assert sorted(path.name for path in written.iterdir()) == ["epoch-0.txt", "epoch-1.txt"], "they stay with the first"
    again = run_json("--resume", "latest", cwd=failed)
    assert again["steps"]["train"]["reused"]
    plain = run_json("component.yaml", cwd=failed)["steps"]["train"]
    assert plain["reused_from"] not in (None, again["steps"]["train"]["reused_from"]), "that of the start from nothing"


def test_a_run_that_kept_checkpoints_goes_on_with_its_own(failed: Path) -> None:
    """And what it writes never stands for what the mended code writes from the beginning."""
    (failed / "train.py").write_text(TRAINS.replace("number == 2", "number == 3"))
    kept = resume_first(failed, ["--keep-checkpoints"])
    assert (kept.returncode, "starts at epoch 2" in kept.stdout) == (1, True), kept.stderr
    again = allranks("run", "--resume", "latest", cwd=failed)
    assert (again.returncode, "starts at epoch 3" in again.stdout) == (1, True), again.stderr
    assert "epoch-2.txt.\n" in again.stderr
    anew = allranks("run", "component.yaml", cwd=failed)
    assert "starts at epoch 0" in anew.stdout


def test_a_script_is_given_the_files_that_it_wrote(tmp_path: Path) -> None:
    """What the code brings, and somebody has mended, stays mended; what the script has written over is as it left it."""
    writes = "import pathlib\nlast = pathlib.Path('last'); last.unlink(missing_ok=True); last.symlink_to('ck')\n"
    writes += "state = pathlib.Path('state.txt'); state.write_text(state.read_text() + 'x'); print(state.read_text())\n"
    (tmp_path / "train.py").write_text(writes + TRAINS)
    (tmp_path / "state.txt").write_text("s")
    (tmp_path / "notes.txt").write_text("old")
    assert allranks("run", "train.py", "--", "ck", cwd=tmp_path).returncode == 1
    (tmp_path / "train.py").write_text(writes + MENDED)
    (tmp_path / "notes.txt").write_text("new")
    begun = resume_first(tmp_path, [])
    assert (begun.returncode, begun.stdout.count("starts at epoch 0")) == (0, 1), begun.stderr
    offer = begun.stderr.partition("to start from that: allranks ")[2].splitlines()[0]
    kept = allranks(*offer.split(), cwd=tmp_path)
    assert (kept.returncode, kept.stdout.count("starts at epoch 2"), kept.stdout.count("sxx")) == (0, 1, 1), kept.stderr
    work = max((tmp_path / ".allranks/runs").iterdir()) / "steps/train/nodes/0/work"
    assert (work / "notes.txt").read_text() == "new"
    assert (work / "last").is_symlink()
    assert max(path.name for path in (work / "last").iterdir()) == "epoch-3.txt"


def test_checkpoints_are_kept_of_a_run_that_has_ended_alone(failed: Path) -> None:
    refused = allranks("run", "component.yaml", "--keep-checkpoints", cwd=failed)
    assert (refused.returncode, "needs the run that wrote them" in refused.stderr) == (2, True), refused.stderr
    alive = RunsHome(failed / ".allranks").find("latest").lock()
    refused = resume_first(failed, ["--keep-checkpoints"])
    assert (refused.returncode, "still writes its checkpoints" in refused.stderr) == (2, True), refused.stderr
    os.close(alive)


def test_a_finished_step_keeps_no_checkpoint(failed: Path) -> None:
    (failed / "train.py").write_text(MENDED)
    assert allranks("run", "component.yaml", cwd=failed).returncode == 0
    done = allranks("run", "--resume", "latest", "lr=2", "--keep-checkpoints", cwd=failed)
    assert (done.returncode, "starts at epoch 0" in done.stdout) == (0, True), done.stderr
    assert "input lr changed since run " in done.stderr
    assert "No checkpoint of a finished step or a sweep is kept.\n" in done.stderr

"""``allranks.run`` and ``allranks.runs`` in Python: why a step failed, where the logs are, and the runs before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import allranks
from allranks.errors import UnknownNameError, UsageError
from tests.local.support import pipeline, step


@pytest.mark.slow
def test_a_failed_run_says_why_and_where_and_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = f"{{one: {step(f'echo the reason; test -e {tmp_path}/mended || exit 3')}, two: {step('echo {} > ${{outputs.out}}', outputs='out: {type: uri_file}')}}}"
    pipeline(tmp_path, f"type: pipeline\njobs: {jobs}\n")
    result = allranks.run("pipeline.yaml", retries=1)
    printed = capsys.readouterr()
    log = result.steps["one"].folder / "user_logs" / "std_log.txt"
    for said in (printed.err, result.explanation):
        assert "step one: the command ended with exit code 3" in said
        assert "| the reason" in said
        assert str(log) in said
    assert f"allranks run --resume {result.run_id}" in printed.out
    assert result.steps["one"].logs == [log]
    assert list(result.failures) == ["one"]
    assert "ended with exit code 3" in result._repr_html_()
    again = allranks.runs()
    assert [one.run_id for one in again] == [result.run_id]
    assert again[0].document() == result.document()
    assert result.seconds is not None
    assert allranks.load_run("latest").steps["two"].outputs["out"].read_text() == "{}\n"
    (tmp_path / "mended").touch()
    resumed = allranks.run(resume=result, logs="one:0")
    assert (resumed.status, resumed.steps["two"].reused_from) == ("succeeded", result.run_id)
    printed = capsys.readouterr().out
    assert "one 0 | the reason" in printed
    assert allranks.run(resume="latest", logs=True).steps["one"].reused_from == resumed.run_id
    assert "| the reason" not in capsys.readouterr().out, "a reused step prints nothing"
    with pytest.raises(UnknownNameError, match="there is no step 'three'"):
        allranks.run(resume="latest", logs=["one", "three"])
    for wrong in ({}, {"resume": "latest"}):
        with pytest.raises(UsageError, match="given"):
            allranks.run(*(["pipeline.yaml"] if wrong else []), **wrong)
    with pytest.raises(UnknownNameError, match="is not among the runs"):
        allranks.load_run("nothing")
    assert allranks.runs(tmp_path / "elsewhere") == []


def test_ctrl_c_ends_a_run_and_what_would_start_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over runs, or the cells of a notebook, went on with the next one."""
    monkeypatch.chdir(tmp_path)
    stops = step(f"kill -INT {os.getpid()}; sleep 60")
    pipeline(tmp_path, f"type: pipeline\njobs: {{one: {stops}}}\n")
    with pytest.raises(KeyboardInterrupt, match="was cancelled"):
        allranks.run("pipeline.yaml")
    assert allranks.load_run("latest").status == "cancelled"


SCRIPT = """\
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}, {parser.parse_args().epochs} epochs")
if os.environ["RANK"] == "0":
    os.makedirs("outputs", exist_ok=True)
    open("outputs/model.txt", "w").write("weights")
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.slow
def test_a_script_runs_as_on_the_command_line(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = allranks.run("train.py", scale="2x2", arguments=["--epochs", 3], check=True)
    printed = capsys.readouterr()
    for rank in range(4):
        assert f"[rank {rank}] rank {rank} of 4, 3 epochs\n" in printed.out
    assert "train.py runs with distribution pytorch: " in printed.err
    assert "rank 3 of 4, 3 epochs" in run.logs("train", rank=3)
    (model,) = run.written_files()
    assert (model.name, model.read_text()) == ("model.txt", "weights")
    assert sorted(path.name for path in script.parent.iterdir()) == [".allranks", "train.py"]
    again = allranks.run(resume=run, logs=False, scale="1x1")
    assert again.logs("train", rank=0) == "rank 0 of 1, 3 epochs\n"
    assert "3 epochs" not in capsys.readouterr().out
    kept = allranks.run(resume=again, arguments=["--epochs", 4], keep_checkpoints=True, containers=False)
    assert kept.logs("train", rank=0) == "rank 0 of 1, 4 epochs\n"
    noted = capsys.readouterr().err
    assert "-- --epochs 3 --epochs 4 in place of -- --epochs 3: allranks run train.py" in noted
    assert "step train resumes from " in noted
    with pytest.raises(UsageError, match="a script has no inputs"):
        allranks.run(resume=again, epochs=5)
    with pytest.raises(UsageError, match="needs the run that wrote them"):
        allranks.run("train.py", keep_checkpoints=True)


@pytest.mark.parametrize(
    ("target", "options", "message", "hint"),
    [
        ("train.py", {"epochs": 3}, "epochs: a script has no inputs", "arguments=['--epochs', '3']"),
        ("train.py", {"arguments": "--epochs 3"}, "arguments='--epochs 3' is one text", "arguments=['--epochs', '3']"),
        ("train.py", {"scale": "2"}, "--scale '2' is not NODESxPROCESSES", "train=2x4"),
        ("train.py", {"code": "lost"}, "'lost' does not hold the script 'train.py'", ""),
        ("train_ddp", {"arguments": ["--epochs"]}, "arguments: only a script takes this", "FILE.py"),
        ("lost.py", {}, "lost.py' is not there", ""),
    ],
)
@pytest.mark.usefixtures("script")
def test_what_is_wrong_with_a_script_is_said_before_anything_runs(
    target: str, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        allranks.run(target, **options)
    assert message in raised.value.message
    assert hint in raised.value.hint
    assert allranks.runs() == []

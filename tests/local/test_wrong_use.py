"""What a user can get wrong is said in one message, with exit code 2, before anything starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.local.support import allranks, pipeline, step

ECHO = step("echo ${{inputs.n}}", inputs="n: '${{parent.inputs.n}}'")
ONE = f"type: pipeline\ninputs: {{n: 3}}\njobs: {{one: {ECHO}}}\n"
LIST = step("ls ${{inputs.d}}", inputs="d: '${{parent.inputs.d}}'")
OUT = "o: {type: uri_folder}"


def reads(step_name: str, port: str) -> str:
    return step("true", inputs=f"x: '${{{{parent.jobs.{step_name}.outputs.{port}}}}}'", outputs=OUT)


def component(folder: Path, extra: str = "", command: str = "command: python a.py --n '${{inputs.n}}'") -> Path:
    (folder / "a.py").write_text("")
    path = folder / "a.yaml"
    path.write_text(
        "name: a\nversion: '1'\ntype: command\nenvironment: azureml:x:1\ncode: .\n"
        "inputs: {n: {type: integer, min: 1, max: 9}, kind: {type: string, default: a, enum: [a, b]}}\n"
        f"{command}\n{extra}"
    )
    return path


def wrong(folder: Path, *arguments: str | Path) -> str:
    """Run it, see that it is refused properly, and return the message."""
    done = allranks("run", *arguments, cwd=folder)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""
    assert not (folder / ".allranks/runs").exists(), "something was started"
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["image_clasification"],
            ["'image_clasification' is no file and no name of the library", "did you mean 'image_classification'?"],
        ),
        (["nowhere.yaml"], ["nowhere.yaml"]),
        (["image_classification", "epoch=3"], ["'epoch' is no input", "'epochs'"]),
        (["image_classification", "train.epoch=3"], ["'train.epoch' is no input", "'train.epochs'"]),
        (["image_classification", "epochs=three"], ["epochs", "'three'", "integer"]),
        (["image_classification", "epochs=0"], ["epochs", "0", "1"]),
        (["image_classification", "optimizer=adamx"], ["optimizer", "'adamx'", "'sgd', 'adam', 'adamw'"]),
        (["image_classification", "data=/no/such/folder"], ["no file or folder '/no/such/folder'"]),
        (["image_classification", "architecture=it's"], ["it's", "quot"]),
        (["image_classification", "--scale", "train=0x1"], ["0x1", "start at 1"]),
        (["image_classification", "--scale", "train=2"], ["train=2", "NODESxPROCESSES"]),
        (["image_classification", "--scale", "trian=2x2"], ["'trian' is no step", "'train'"]),
        (["image_classification", "nodes=0"], ["nodes", "0"]),
        (["image_classification", "--steps", "trian"], ["'trian' is no step", "prepare, train, evaluate"]),
        (["image_classification", "--retries", "-1"], ["--retries -1"]),
        (["image_classification", "--resume", "latest"], ["no runs"]),
        (["train_ddp"], ["data", "has none"]),
        ([], ["TARGET is missing"]),
        (["image_classification", "--bogus"], ["--bogus"]),
    ],
)
def test_arguments(tmp_path, arguments, words):
    message = wrong(tmp_path, *arguments)
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", ["pipeline.yaml:2"]),
        ("type: pipeline\njobs: {}\n", ["jobs"]),
        (ONE.replace("inputs: {n: 3}\n", "inputs: {m: 3}\n"), ["parent.inputs.n", "m"]),
        (f"type: pipeline\njobs:\n  a: {reads('b', 'o')}\n  b: {reads('a', 'o')}\n", ["a", "->", "b"]),
        (f"type: pipeline\njobs: {{a: {reads('zzz', 'o')}}}\n", ["zzz"]),
        (f"type: pipeline\njobs:\n  a: {step('true', outputs=OUT)}\n  b: {reads('a', 'p')}\n", ["'p'", "o"]),
        ("type: pipeline\njobs: {a: {type: spark, code: ., entry: {file: a.py}}}\n", ["spark", "a"]),
        (
            f"type: pipeline\njobs: {{a: {step('true', more='distribution: {type: ray}')}}}\n",
            ["ray", "pytorch"],
        ),
        (
            f"type: pipeline\njobs: {{a: {step('true', more='distribution: {type: tensorflow, worker_count: 3}, resources: {instance_count: 2}')}}}\n",
            ["3", "2", "worker_count"],
        ),
        ("type: pipeline\njobs: {a: {component: ./none.yaml}}\n", ["none.yaml"]),
        (
            f"type: pipeline\ninputs: {{d: {{type: uri_folder, path: azureml:mnist:1}}}}\njobs: {{a: {LIST}}}\n",
            ["azureml:mnist:1"],
        ),
    ],
)
def test_documents(tmp_path, text, words):
    message = wrong(tmp_path, pipeline(tmp_path, text))
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("extra", "command", "value", "words"),
    [
        ("", "", "n=3", ["command"]),
        ("additional_includes: [../nothing]\n", "command: python a.py --n '${{inputs.n}}'", "n=3", ["nothing"]),
        ("", "command: python a.py --n '${{inputs.m}}'", "n=3", ["inputs.m"]),
        ("", "command: python a.py --n '${{inputs.n}}'", "n=10", ["10", "9"]),
        ("", "command: python a.py --n '${{inputs.n}}'", "kind=c", ["'c'", "'a', 'b'"]),
        ("", "command: python a.py --n '${{inputs.n}}' --k '${{inputs.kind}}'", "kind=it's", ["it's"]),
    ],
)
def test_components(tmp_path, extra, command, value, words):
    message = wrong(tmp_path, component(tmp_path, extra, command), value, *([] if value.startswith("n=") else ["n=3"]))
    for word in words:
        assert word in message, message


def test_all_mistakes_are_named_at_once(tmp_path):
    message = wrong(tmp_path, "image_classification", "epochs=three", "optimizer=adamx")
    assert "'three'" in message
    assert "'adamx'" in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_runs_folder(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "locked" in wrong(tmp_path, pipeline(tmp_path, ONE), "--runs-dir", "locked/runs")


def test_a_runs_folder_that_is_a_file_or_below_one(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        assert "--runs-dir" in wrong(tmp_path, pipeline(tmp_path, ONE), "--runs-dir", place)


@pytest.mark.parametrize(
    ("option", "words"),
    [("one", "STEP=PATH"), ("one=/no/python", "no program '/no/python'"), ("two=/bin/sh", "no step")],
)
def test_a_bad_choice_of_interpreter(tmp_path, option, words):
    assert words in wrong(tmp_path, pipeline(tmp_path, ONE), "--python", option)

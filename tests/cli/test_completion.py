"""Completion: the words that there are, and real shells that take them."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.cli.completed_words import completed_words
from allranks.cli.completion import SCRIPTS
from allranks.cli.main import VERBS
from tests.cli.conftest import Called

ROOT = Path(__file__).parents[2]
MINE = """\
type: pipeline
inputs: {rate: 0.1, rows: 5}
jobs:
  count: {command: "true", environment: {image: x}}
  compare: {command: "true", environment: {image: x}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "data").mkdir()
    (tmp_path / "notes.txt").write_text("")
    step = tmp_path / ".allranks" / "runs" / "20261122-000000-000-abcd" / "steps" / "count"
    step.mkdir(parents=True)
    (step.parents[1] / "run.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("ve", ["version"]),
        ("run image_cl", ["image_classification", "image_classification_torchrun"]),
        ("run mi", ["mine.yaml"]),
        ("run mine.yaml ra", ["rate="]),
        ("run mine.yaml rate=0.5 r", ["rate=", "rows="]),
        ("run image_classification optimizer=", ["optimizer=adam", "optimizer=adamw", "optimizer=sgd"]),
        ("run image_classification optimizer = ad", []),
        ("run image_classification data=d", ["data=data/"]),
        ("run image_classification --scale tr", ["train="]),
        ("run mine.yaml --steps count,com", ["count,compare"]),
        ("run mine.yaml --logs co", ["compare", "count"]),
        ("run mine.yaml --environment count=py", ["count=pytorch"]),
        ("run --resume la", ["latest"]),
        ("run mine.yaml --no-", ["--no-cache"]),
        ("runs lo", ["logs"]),
        ("runs logs 2026", ["20261122-000000-000-abcd"]),
        ("runs logs latest ", ["count"]),
        ("show train_h", ["train_horovod", "train_horovod_keras"]),
        ("completion z", ["zsh"]),
        ("nonsense ", []),
        ("run no/such/file.yaml r", []),
    ],
)
def test_words(typed: str, words: list[str]) -> None:
    assert completed_words(typed.split(" ")) == words


def test_every_verb_is_completed_and_no_option_hidden(cli: Callable[..., Called]) -> None:
    assert set(VERBS) <= set(completed_words([""]))
    for verb in VERBS:
        assert "--help" in completed_words([verb, "--"])
    assert cli("completion", "words", "--", "run", "--js").out == "--json\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_takes_its_script(folder: Path, shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "allranks", "completion", shell],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).stdout
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    (folder / "script").write_text(script)
    assert subprocess.run([program, "-n", "script"], capture_output=True, check=False).stderr == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed here")
def test_a_real_bash_completes(folder: Path) -> None:
    ours, theirs = pty.openpty()
    command = ["bash", "--norc", "--noprofile", "-i"]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PS1": "> ", "TERM": "dumb", "INPUTRC": "/dev/null"}
    shell = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=folder, start_new_session=True
    )
    os.close(theirs)

    def said(text: str, until: str) -> str:
        os.write(ours, text.encode())
        heard, due = "", time.monotonic() + 20
        while until not in heard and time.monotonic() < due:
            if select.select([ours], [], [], 0.2)[0]:
                heard += os.read(ours, 65536).decode()
        assert until in heard, heard
        return heard

    try:
        said(
            f'allranks() {{ {sys.executable} -m allranks "$@"; }}; eval "$(allranks completion bash)"; echo rea""dy\n',
            "ready",
        )
        said("echo; : allranks\x15allranks run mi\t", "mine.yaml ")
        said("ra\t", "rate=")
        said("\x15allranks run image_classification optimizer=s\t", "optimizer=sgd ")
        said("\x15allranks runs logs lat\t", "latest ")
    finally:
        os.close(ours)
        shell.kill()
        shell.wait()

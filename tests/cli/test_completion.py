"""Completion: the words that there are, and real shells that take them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.cli.completers import complete_line
from allranks.cli.main import VERBS, load_verb
from tests.cli.conftest import Called
from tests.local.support import command, environ

SHELLS = ("bash", "zsh", "fish")
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
    ended = {"status": "succeeded", "seconds": 1, "metrics": {"loss": 0.5}}
    state = {"run_id": step.parents[1].name, "status": "succeeded", "steps": {"count": ended}}
    (step.parents[1] / "run.json").write_text(json.dumps(state))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("ve", ["version"]),
        ("run image_cl", ["image_classification", "image_classification_torchrun"]),
        ("run mi", ["mine.yaml"]),
        ("run mine.yaml ra", ["rate="]),
        ("run mine.yaml rate=0.5 r", ["rate=", "rows="]),
        ("run image_classification optimizer=", ["optimizer=sgd", "optimizer=adam", "optimizer=adamw"]),
        ("run image_classification data=d", ["data=data/"]),
        ("run image_classification --scale tr", ["train="]),
        ("run mine.yaml --steps count,com", ["count,compare"]),
        ("run mine.yaml --logs co", ["count", "compare"]),
        ("run mine.yaml --environment count=py", ["count=pytorch"]),
        ("run --resume la", ["latest"]),
        ("run mine.yaml --no-", ["--no-cache"]),
        ("runs lo", ["logs"]),
        ("runs list --st", ["--status"]),
        ("runs list --status failed,suc", ["failed,succeeded"]),
        ("runs list --sort lo", ["loss"]),
        ("runs logs 2026", ["20261122-000000-000-abcd"]),
        ("runs logs latest ", ["count"]),
        ("show train_h", ["train_horovod", "train_horovod_keras"]),
        ("completion z", ["zsh"]),
        ("run no/such/file.yaml r", []),
    ],
)
def test_words(typed: str, words: list[str]) -> None:
    assert completed(typed) == words


def completed(typed: str) -> list[str]:
    """Return what a shell is given for a line that is being typed, by a fork of this process."""
    for verb in VERBS:
        load_verb(verb)  # once, for all forks
    if (pid := os.fork()) == 0:
        try:
            os.environ.update(asked_by_shell(typed))
            complete_line()
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return words_in(Path("words"))


def asked_by_shell(typed: str) -> dict[str, str]:
    """Return the variables with which argcomplete's scripts ask for the words of a line."""
    line = f"allranks {typed}"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9"}
    return asked | {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": "words"}


def words_in(file: Path) -> list[str]:
    return [word.strip() for word in file.read_text().split("\n") if word]


def test_every_verb_is_completed_by_the_command(folder: Path) -> None:
    asked = environ(**asked_by_shell(""))
    done = subprocess.run(command(), env=asked, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert set(VERBS) <= set(words_in(folder / "words"))


def test_completion_imports_neither_torch_nor_the_sdk(folder: Path) -> None:
    code = "import sys, allranks.cli.completers; print(sorted({'torch', 'azure.ai', 'rich.live'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ())
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_its_script(cli: Callable[..., Called], folder: Path, shell: str) -> None:
    script = cli("completion", shell).out
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed here")
    (folder / "script").write_text(script)
    assert subprocess.run([program, "-n", "script"], capture_output=True, check=False).stderr == b""

"""Completion: the words that there are, and real shells that take them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

import pytest

from allranks.cli.main import VERBS

ROOT = Path(__file__).parents[2]
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
    """What a shell is given for a line that is being typed, as argcomplete's scripts ask for it."""
    line = f"allranks {typed}"
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash", "COMP_TYPE": "9"}
    asked |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": "words"}
    done = subprocess.run(
        [sys.executable, "-m", "allranks"],
        env=os.environ | asked | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [word.strip() for word in Path("words").read_text().split("\n") if word]


@pytest.mark.usefixtures("folder")
def test_every_verb_is_completed() -> None:
    assert set(VERBS) <= set(completed(""))


def test_completion_imports_neither_torch_nor_the_sdk(folder: Path) -> None:
    code = "import sys, allranks.cli.completers; print(sorted({'torch', 'azure.ai', 'rich.live'} & set(sys.modules)))"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", SHELLS)
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


class Shell:
    """An interactive shell on a terminal, into which keys are typed."""

    def __init__(self, command: list[str], folder: Path, **environ: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("HOME", "ZDOTDIR")}
        known |= {"PYTHONPATH": str(ROOT), "HOME": str(folder), **environ}
        own = ["setsid", "--ctty", *command]  # fish wants the terminal to be its own
        self._process = subprocess.Popen(own, stdin=theirs, stdout=theirs, stderr=theirs, env=known, cwd=folder)
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        self._process.kill()
        self._process.wait()

    def said(self, text: str, until: str) -> str:
        """Type a text, and read what the terminal shows until something is there."""
        os.write(self._ours, text.encode())
        heard, due = "", time.monotonic() + 60
        while until not in plain(heard) and time.monotonic() < due:
            if select.select([self._ours], [], [], 0.2)[0]:
                heard += os.read(self._ours, 65536).decode(errors="replace")
                self._answer(heard)
        assert until in plain(heard), heard
        return plain(heard)

    def _answer(self, heard: str) -> None:
        """Say what kind of terminal this is: fish asks, and waits for the answer."""
        if "\x1b[c" in heard[-200:] or "\x1b[0c" in heard[-200:]:
            os.write(self._ours, b"\x1b[?62;c")


def plain(text: str) -> str:
    """What a terminal shows, without colours and movements."""
    return re.sub(r"\x1b(\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\\\)|[()=>].?|[78])|[\b\x07]", "", text)


STARTED = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "", {"PS1": "> ", "TERM": "dumb", "INPUTRC": "/dev/null"}),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -D -u; ", {"PS1": "> ", "TERM": "xterm"}),
    "fish": (["fish", "--no-config", "-i"], "", {"TERM": "xterm", "XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data-home"}),
}  # fmt: skip
"""How each shell is started so that it reads nobody's settings, and what is typed first."""
LOADED = {"fish": "allranks completion fish | source; "}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes(folder: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    tool = folder / "bin" / "allranks"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m allranks "$@"\n')
    tool.chmod(0o755)
    command, first, environ = STARTED[shell]
    load = LOADED.get(shell, f'eval "$(allranks completion {shell})"; ')
    with Shell(command, folder, PATH=f"{tool.parent}:{os.environ['PATH']}", **environ) as typed:
        typed.said(f'{first}{load}echo rea""dy\n', "ready")
        typed.said("allranks run mi\t", "mine.yaml ")
        typed.said("ra\t", "rate=")
        typed.said("\x15allranks run image_classification optimizer=s\t", "optimizer=sgd ")
        typed.said("\x15allranks runs logs lat\t", "latest ")

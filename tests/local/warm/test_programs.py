"""A command is started without bash only where bash would do nothing but that."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allranks.local.warm.bash_start import is_plain_bash, shell_variables
from allranks.local.warm.programs import read_python_program, split_plain_words

COMMANDS = st.text(alphabet="ab'\" \t$\\`;|&<>(){}[]*?~#=!-_./,:%+@^0\n", min_size=1, max_size=30)


@settings(max_examples=400, deadline=None)
@given(COMMANDS)
@example("a 'b c' \"d e\"f --g='h'")
@example("a=b c")
@example("a b#c")
def test_words_are_those_that_bash_makes(text: str) -> None:
    words = split_plain_words(f"echo {text}")
    if words:
        script = f"printf '%s\\0' {text}"
        told = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=False, env={"PATH": "/bin"})
        expected = [b""] if len(words) == 1 else [os.fsencode(word) for word in words[1:]]
        assert told.stdout.split(b"\0")[:-1] == expected


@pytest.mark.parametrize(
    "command",
    [
        *("python train.py $EPOCHS", "python train.py; true", "cd a && python train.py", "A=1 python train.py"),
        *("python train.py *.txt", "python train.py > log", "pip install x", "torchrun train.py", "python -c pass"),
        *(
            "python",
            "python -",
            "python -X dev train.py",
            "python train.py ~/a",
            "python train.py {a,b}",
            "python a.py &",
        ),
        *(
            "mpirun python train.py",
            "exec python train.py",
            "python train.py `date`",
            "python 'a",
            "python a\npython b",
        ),
    ],
)
def test_anything_else_is_left_to_bash(command: str) -> None:
    assert read_python_program(command, {"PATH": "/usr/bin"}) is None


def test_the_interpreter_is_the_first_on_path_and_no_script(tmp_path: Path) -> None:
    real, script = tmp_path / "real", tmp_path / "script"
    real.mkdir(), script.mkdir()
    (real / "python").symlink_to(Path("/bin/true").resolve())
    (script / "python").write_text("#!/bin/sh\n")
    (script / "python").chmod(0o755)
    command = "python -u train.py --a 'b c'"
    found = read_python_program(command, {"PATH": f"{tmp_path}:{real}:{script}"})
    assert found is not None
    assert (found.interpreter, found.flags, found.target) == (real / "python", ("-u",), "train.py")
    assert (found.arguments, found.is_module) == (("--a", "b c"), False)
    assert read_python_program(command, {"PATH": f"{script}:{real}"}) is None
    assert read_python_program(command, {"PATH": str(real), "BASH_ENV": "x"}) is None
    assert read_python_program(command, {"PATH": str(real), "BASH_FUNC_python%%": "() { :; }"}) is None


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SHLVL": "3", "OLDPWD": "/nowhere"},
        {"SHLVL": "x", "OLDPWD": "/"},
        {"PS1": "(.venv) $", "PS2": ">", "TERM": "dumb", "COLUMNS": "7", "HOSTNAME": "here", "UID": "1"},
    ],
)
def test_variables_are_those_that_bash_leaves(variables: dict[str, str]) -> None:
    environ = {"PATH": "/usr/bin:/bin", "PWD": "/", "A": "b", **variables}
    told = subprocess.run(["/bin/bash", "-c", "env -0"], cwd="/", env=environ, capture_output=True, check=True).stdout
    pairs = dict(pair.split("=", 1) for pair in told.decode().split("\0") if pair)
    assert is_plain_bash(environ)
    assert shell_variables(environ, "/usr/bin/env") == pairs


@pytest.mark.parametrize("name", ["BASH", "BASH_VERSION", "IFS", "RANDOM", "OPTIND", "LINENO", "BASH_ENV", "SHELLOPTS"])
def test_what_bash_sets_itself_is_left_to_it(name: str) -> None:
    assert not is_plain_bash({"PATH": "/usr/bin:/bin", name: "7"})

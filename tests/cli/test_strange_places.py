"""Strange folders and files get one message, without a traceback and without what a terminal would obey."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from allranks.cli.main import main
from tests.local.support import command, environ


@pytest.mark.parametrize("arguments", [("run", "train_ddp", "--dry-run"), ("doctor",), ("env", "list")])
def test_a_current_folder_that_was_removed(arguments: tuple[str, ...], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, str(gone), *command(*arguments)],
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "error: the current folder has been removed.\nhint: Change to another one.\n"


@pytest.mark.parametrize("verb", ["init", "run"])
def test_a_script_that_is_nested_too_deeply(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep.py").write_text(f"x = {'-' * 5000}1\n")
    arguments = [verb, str(tmp_path / "deep.py"), *(["--dry-run"] if verb == "run" else [])]
    assert main(arguments) == 2
    assert "deep.py is nested too deeply for Python's parser." in capsys.readouterr().err


@pytest.mark.parametrize("control", ["\\e]0;PWNED\\a", "\\x9b31m", "\\e[2J", "\\u202e", "\\u2066"])
@pytest.mark.parametrize("verb", ["lint", "run"])
def test_controls_of_a_terminal_in_a_document_are_not_printed(
    verb: str, control: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yml").write_text(
        f'type: pipeline\n"{control}key": 1\njobs: {{"{control}": {{type: "{control}"}}}}\n'
    )
    assert main([verb, str(tmp_path / "a.yml")]) == 2
    output = "".join(capsys.readouterr())
    assert "key" in output
    assert all(char.isprintable() or char == "\n" for char in output)

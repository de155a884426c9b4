"""Child processes import the allranks of their parent."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import allranks
from allranks.child_process import child_command
from tests.helpers import clean_environment


@pytest.mark.parametrize("isolated", [False, True])
def test_a_child_imports_the_allranks_of_its_parent(tmp_path: Path, isolated: bool) -> None:
    (tmp_path / "allranks").mkdir()
    (tmp_path / "allranks" / "__init__.py").write_text("raise SystemExit('another allranks')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('of the working folder')\n")
    code = "import allranks.errors, json, sys; print(allranks.__file__, *sys.argv[1:])"
    command, environ = child_command(code, "a", "b c", isolated=isolated), clean_environment({"PYTHONPATH": None})
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (f"{allranks.__file__} a b c", "")


def test_another_allranks_on_the_path_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "allranks").mkdir()
    (tmp_path / "allranks" / "__init__.py").write_text("raise SystemExit('another allranks')\n")
    environ = clean_environment({"PYTHONPATH": str(tmp_path)})
    command = child_command("import allranks.errors; print(allranks.__file__)")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (allranks.__file__, "")

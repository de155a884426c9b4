"""What continuous integration makes of tests that fail: run again alone, unless they may show a race."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import clean_environment

TESTS = """
from pathlib import Path

import pytest

def fails_once(name):
    ran = Path(name)
    if not ran.exists():
        ran.touch()
        raise AssertionError(f"the first output of {name}")

def test_sound(): pass
def test_flaky(): fails_once("flaky")
@pytest.mark.race
def test_race(): fails_once("race")
def test_broken(): assert not "broken"
@pytest.mark.parametrize("number", range(4))
def test_many(number): fails_once(f"many {number}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "code", "runs_again"),
    [
        ("sound", 0, False),
        ("sound or flaky", 0, True),
        ("flaky or race", 2, False),
        ("flaky or broken", 1, True),
        ("many", 2, False),
    ],
)
def test_few_failures_that_are_no_race_run_again(tmp_path: Path, chosen: str, code: int, runs_again: bool) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = race\n")
    (tmp_path / "Makefile").write_text(f"test:\n\t{sys.executable} -m pytest -k '{chosen}'\n")
    environ = clean_environment({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    command = [sys.executable, "-m", "tools.ci_tests", "lint=7"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Run again, alone: test_some.py::test_flaky" in done.stdout) == runs_again
    assert ("FLAKY: test_some.py::test_flaky." in done.stdout) == (runs_again and not code)
    *_, phases, summary = done.stdout.splitlines()
    assert phases.startswith("lint=7  tests=")
    assert ("failed" in summary) == bool(code)
    if runs_again and not code:
        assert done.stdout.partition("FLAKY")[2].count("the first output of flaky") > 0

"""A few hundred mutants of every reader, and that the judge of them sees what it is there for."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutators import mutate_bytes, mutate_json, mutate_text
from tests.helpers import ROOT, clean_environment


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Of a process of its own: mutants are forked, and pytest's has threads."""
    command = [sys.executable, *arguments]
    environment = clean_environment({"PYTHONPATH": str(ROOT)})
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


_NONE = ("--yaml", "0", "--data", "0", "--folders", "0", "--models", "0")
"""The last number given counts."""


@pytest.mark.parametrize(
    "counts",
    [
        ("--yaml", "160"),
        ("--data", "180"),
        ("--folders", "160", "--target", "events", "outputs", "manifests", "tracking_rows"),
    ],
    ids=["yaml", "data", "folders"],
)
def test_no_mutant_goes_wrong(counts: tuple[str, ...], tmp_path: Path) -> None:
    done = run_python("-m", "tests.fuzz", *_NONE, *counts, "--seed", "7", "--keep", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing went wrong" in done.stdout


PLANTED = """
import os, sys, time
from pathlib import Path
from tests.fuzz import runner
from tests.fuzz.targets import HalfWrittenError, Target
runner.MOST_SECONDS, runner._PATIENCE = 3.0, 4.0  # to fill memory may take a second

def seeds(folder):
    (folder / "x.txt").write_text("one\\ntwo\\n")

def judged(number, folder):
    if folder.suffix == ".trial": return
    if number == 1: raise KeyError("x")
    if number == 2: time.sleep(60)
    if number == 3: b"x" * (560 * 2**20)
    if number == 4: raise HalfWrittenError("half")
    if number == 5: os.abort()
    if number == 6:
        until = time.process_time() + 3.2
        while time.process_time() < until: pass

target = Target("planted", "data", seeds, lambda folder: judged(int(folder.suffix[1:].replace("trial", "0")), folder))
for finding in runner.run_mutants(target, range(8), 1, Path(sys.argv[1])).findings:
    print(finding.number, finding.kind)
"""


def test_the_judge_sees_each_kind_of_wrong(tmp_path: Path) -> None:
    done = run_python("-c", PLANTED, str(tmp_path))
    found = dict(line.split(" ") for line in done.stdout.splitlines())
    assert found == {"1": "traceback", "2": "hang", "3": "memory", "4": "half-written", "5": "death", "6": "hang"}, (
        done.stderr
    )


@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_text, mutate_json])
def test_a_mutant_is_made_again_by_its_number_and_is_none_of_the_others(mutate: object) -> None:
    content = b'{"name": "x", "items": [1, 2, {"a": null}]}\n'
    found = [mutate(content, random.Random(number)) for number in range(60)]  # type: ignore[operator]
    assert found == [mutate(content, random.Random(number)) for number in range(60)]  # type: ignore[operator]
    assert len(set(found)) > 45

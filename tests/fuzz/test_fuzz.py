"""Some mutants of foreign files, of which `make fuzz` reads more, and that the judge of mutants sees each kind of fault."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.mutators import mutate_bytes, mutate_json, mutate_text
from tests.helpers import ROOT, clean_environment
from tests.waiting import TIMEOUT


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own: mutants are forked, and pytest's process has threads."""
    command = [sys.executable, *arguments]
    environment = clean_environment({"PYTHONPATH": str(ROOT)})
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "targets", "imports"),
    [
        (20, "yaml", ""),
        (4, "image_folder csv parquet text tokenizer dataset checkpoint", ", pandas, sklearn.datasets"),
        pytest.param(4, "torch_model", ", torch", marks=pytest.mark.exhaustive),
        (6, "runs", ""),
    ],
    ids=["yaml", "data", "models", "folders"],
)
def test_no_mutant_goes_wrong(count: int, targets: str, imports: str, tmp_path: Path, exhaustive: bool) -> None:
    mutants = str(count * (8 if exhaustive else 1))
    # What is imported here is not imported once more by the process that tries the seeds.
    code = f"import sys{imports}; from tests.fuzz.__main__ import main; sys.exit(main())"
    arguments = ("--mutants", mutants, "--seed", "7", "--keep", str(tmp_path), "--target", *targets.split())
    done = run_python("-c", code, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing went wrong" in done.stdout


PLANTED = """
import os, resource, signal, sys
from pathlib import Path
from tests.fuzz import __main__ as fuzz
from tests.fuzz.targets import TARGETS, Target

def seeds(folder):
    (folder / "x.txt").write_text("one\\ntwo\\n")

def judged(folder):
    number = int(folder.suffix[1:] or 0)
    if number == 1: raise KeyError("x")
    if number == 2 and signal.alarm(1) > 1: os.read(os.pipe()[0], 1)
    if number == 3: b"x" * (560 * 2**20)
    if number == 4: os.abort()
    if number == 5 and resource.getrlimit(resource.RLIMIT_CPU)[0] == 10: os.kill(os.getpid(), signal.SIGXCPU)

TARGETS["planted"] = Target(seeds, judged)
for number, what in fuzz.read_mutants("planted", 7, 1, Path(sys.argv[1])).items():
    print(number, what.strip().splitlines()[-1].partition(":")[0])
"""


def test_the_judge_sees_each_kind_of_fault(tmp_path: Path) -> None:
    done = run_python("-c", PLANTED, str(tmp_path))
    found = dict(line.split(" ") for line in done.stdout.splitlines())
    assert found == {"1": "KeyError", "2": "hang", "3": "memory", "4": "death", "5": "hang"}, done.stderr


@pytest.mark.parametrize("mutate", [mutate_bytes, mutate_text, mutate_json])
def test_a_mutant_is_made_again_by_its_number_and_is_none_of_the_others(mutate: object) -> None:
    content = b'{"name": "x", "items": [1, 2, {"a": null}]}\n'
    found = [mutate(content, random.Random(number)) for number in range(60)]  # type: ignore[operator]
    assert found == [mutate(content, random.Random(number)) for number in range(60)]  # type: ignore[operator]
    assert len(set(found)) > 40

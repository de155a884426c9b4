"""What is printed where the output is a terminal, and narrow, or full, or closed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.waiting import TIMEOUT

ALLRANKS = [sys.executable, "-m", "allranks"]
ROOT = Path(__file__).parents[2]
ECHO = """\
type: pipeline
jobs:
  prepare:
    command: sleep 1
    environment: {image: x}
"""


def on_a_terminal(columns: int, cwd: Path, *arguments: str, code: int = 0) -> str:
    """The output of a call whose standard output is a terminal of so many columns, without its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [*ALLRANKS, *arguments],
        cwd=cwd,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            text += (part := os.read(ours, 65536))
        except OSError:  # how Linux says that the other side was closed
            break
        if not part:
            break
    os.close(ours)
    assert process.wait(timeout=TIMEOUT) == code, text
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()).replace("\r", "")


@pytest.mark.parametrize(("columns", "shown"), [(50, False), (120, True)])
def test_a_narrow_table_has_fewer_columns(tmp_path: Path, columns: int, shown: bool) -> None:
    (tmp_path / "echo.yaml").write_text(ECHO)
    printed = on_a_terminal(columns, tmp_path, "run", "echo.yaml")
    assert ("nodes x ranks" in printed) == shown
    assert re.search(r"^prepare +(running|succeeded)", printed, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["list"], ["runs", "--json"]])
def test_a_full_disk_is_one_message(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ALLRANKS, *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "error: a file or the standard output: No space left on device.\n"


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"]
    done = subprocess.run([*command, *ALLRANKS, "list"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_no_file_can_have_is_one_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ALLRANKS, "run", "a" * 5000 + ".yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.endswith("aaa.yaml: File name too long.\n")


LOGGED = {"validation_accuracy": 0.91, "loss": 0.123456, "samples_per_second": 12345.6}
METRICS = json.dumps({"step": 3, "total": 9, "metrics": LOGGED})
BUSY = f"""\
type: pipeline
jobs:
  prepare_a_large_dataset:
    command: >-
      mkdir -p outputs && echo '{METRICS}' > outputs/metrics.jsonl && sleep 1.2
    environment: {{image: x}}
"""


def test_at_80_columns_names_and_times_stay_when_metrics_arrive(tmp_path: Path) -> None:
    (tmp_path / "busy.yaml").write_text(BUSY)
    printed = on_a_terminal(80, tmp_path, "run", "busy.yaml")
    drawn = [line for line in printed.splitlines() if line.startswith("prepare") and "validation_accuracy" in line]
    assert drawn, printed
    whole = re.compile(r"prepare_a_large_dataset +running +\d+s +█+░+ +33% +(~\d+s +)?validation_accuracy")
    assert any(whole.match(line) for line in drawn), drawn


SPACE = {"batch_size": [64], "weight_decay": [0.001], "dropout_probability": [0.25], "learning_rate": [0.003, 0.002]}
SWEEP = f"""\
type: pipeline
jobs:
  tune_everything:
    type: sweep
    trial:
      type: command
      name: tune
      inputs: {{{", ".join(f"{name}: {{type: number}}" for name in SPACE)}}}
      command: "echo {" ".join(f"${{{{inputs.{name}}}}}" for name in SPACE)}; sleep 1.5"
      environment: {{image: x}}
    sampling_algorithm: grid
    search_space: {json.dumps({name: {"type": "choice", "values": values} for name, values in SPACE.items()})}
    objective: {{goal: minimize, primary_metric: validation_loss}}
    limits: {{max_total_trials: 2, max_concurrent_trials: 2}}
"""


@pytest.mark.parametrize("columns", [80, 140])
def test_the_trials_of_a_sweep_can_be_told_apart(tmp_path: Path, columns: int) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    printed = on_a_terminal(columns, tmp_path, "run", "sweep.yaml", code=1)
    for number, rate in enumerate(("0.003", "0.002")):
        drawn = [line for line in printed.splitlines() if line.startswith(f"  tune_everything.{number} ")]
        assert drawn, printed
        assert f"learning_rate={rate}" in drawn[-1]

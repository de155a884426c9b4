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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.conftest import Called
from tests.local.support import command, environ
from tests.waiting import TIMEOUT


def on_a_terminal(columns: int, cwd: Path, *arguments: str, code: int = 0, shows: str = "") -> str:
    """Return the output of a call on a terminal of so many columns, without its colours.

    Steps that read a line from the pipe ``cwd / "shown"`` wait until the output matches the pattern `shows`.
    """
    os.mkfifo(cwd / "shown")
    shown = os.open(cwd / "shown", os.O_RDWR)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in environ(TERM="xterm").items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=variables,
    )
    os.close(theirs)
    text = b""
    with suppress(OSError):  # Linux raises EIO once the other side is closed
        while part := os.read(ours, 65536):
            text += part
            if shows and re.search(shows, plain(text), re.MULTILINE):
                os.write(shown, b"\n" * 10)
                shows = ""
    os.close(ours)
    os.close(shown)
    assert process.wait(timeout=TIMEOUT) == code, text
    return plain(text)


def plain(text: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode(errors="replace")).replace("\r", "")


@pytest.mark.parametrize("arguments", [["list"], ["runs", "--json"]])
def test_a_full_disk_is_one_message(tmp_path: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "error: a file or the standard output: No space left on device.\n"


def test_a_closed_output_is_no_error(tmp_path: Path) -> None:
    closing = [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"]
    done = subprocess.run([*closing, *command("list")], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_name_that_no_file_can_have_is_one_message(cli: Callable[..., Called]) -> None:
    called = cli("run", "a" * 5000 + ".yaml")
    assert called.code == 2
    assert called.err.endswith("aaa.yaml: File name too long.\n")


LOGGED = {"validation_accuracy": 0.91, "loss": 0.123456, "samples_per_second": 12345.6}
METRICS = json.dumps({"step": 3, "total": 9, "metrics": LOGGED})
BUSY = f"""\
type: pipeline
jobs:
  prepare_a_large_dataset:
    command: >-
      mkdir -p outputs && echo '{METRICS}' > outputs/metrics.jsonl && read shown < PLACE/shown
    environment: {{image: x}}
"""


def test_at_80_columns_names_and_times_stay_when_metrics_arrive(tmp_path: Path) -> None:
    (tmp_path / "busy.yaml").write_text(BUSY.replace("PLACE", str(tmp_path)))
    whole = r"^prepare_a_large_dataset +running +\d+s +█+░+ +33% +(~\d+s +)?validation_accuracy"
    printed = on_a_terminal(80, tmp_path, "run", "busy.yaml", shows=whole)
    assert re.search(r"^  prepare_a_large_dataset: succeeded", printed, re.MULTILINE), printed


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
      command: "echo {" ".join(f"${{{{inputs.{name}}}}}" for name in SPACE)}; read shown < PLACE/shown"
      environment: {{image: x}}
    sampling_algorithm: grid
    search_space: {json.dumps({name: {"type": "choice", "values": values} for name, values in SPACE.items()})}
    objective: {{goal: minimize, primary_metric: validation_loss}}
    limits: {{max_total_trials: 2, max_concurrent_trials: 2}}
"""


@pytest.mark.parametrize("columns", [80, 140])
def test_the_trials_of_a_sweep_can_be_told_apart(tmp_path: Path, columns: int) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("PLACE", str(tmp_path)))
    both = r"^  tune_everything.0 +running.*\n  tune_everything.1 +running"
    printed = on_a_terminal(columns, tmp_path, "run", "sweep.yaml", code=1, shows=both)
    assert ("nodes x ranks" in printed) == (columns >= 120)
    for number, rate in enumerate(("0.003", "0.002")):
        drawn = [line for line in printed.splitlines() if line.startswith(f"  tune_everything.{number} ")]
        assert drawn, printed
        assert f"learning_rate={rate}" in drawn[-1]

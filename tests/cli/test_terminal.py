"""What is printed where the output is a terminal, and narrow, or full, or closed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ALLRANKS = [sys.executable, "-m", "allranks"]
ROOT = Path(__file__).parents[2]
ECHO = """\
type: pipeline
jobs:
  prepare:
    command: sleep 1
    environment: {image: x}
"""


def on_a_terminal(columns: int, cwd: Path, *arguments: str) -> str:
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
    assert process.wait(timeout=60) == 0, text
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()).replace("\r", "")


def test_prose_is_broken_at_the_edge_and_no_choice_is_cut(tmp_path: Path) -> None:
    page = on_a_terminal(72, tmp_path, "show", "train_ddp")
    description = page.partition("\n\n")[2].partition("\n\ninputs")[0]
    assert max(map(len, description.splitlines())) in range(60, 73)
    assert "sgd | adam | adamw" in page
    assert "…" not in page


def test_a_list_is_cut_at_the_edge_unless_too_little_would_be_left(tmp_path: Path) -> None:
    assert max(map(len, on_a_terminal(80, tmp_path, "list").splitlines()[:-2])) == 80
    assert "…" not in on_a_terminal(40, tmp_path, "list")


@pytest.mark.parametrize(("columns", "shown"), [(40, False), (100, True)])
def test_a_narrow_table_leaves_out_columns_rather_than_names(tmp_path: Path, columns: int, shown: bool) -> None:
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

"""The live table: whatever the terminal, each row has its step's name, state, progress and time."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from allranks import catalogue
from allranks.cli.live_curves import LiveCurves
from allranks.cli.live_fit import TableFit, TableLine
from allranks.cli.live_progress import LiveProgress
from allranks.cli.live_table import status_table
from allranks.cli.text import cut_middle
from allranks.local.folders import RunsHome
from allranks.local.result import StepFailure, StepProgress, StepResult
from allranks.spec import read_pipeline
from allranks.wording import short_duration
from tests.cli.screen import Screen

ROOT = Path(__file__).parents[2]
LOGGED = {  # what the trainers of the library log: shared/training/core/run.py
    "loss": 0.123456,
    "learning_rate": 0.001,
    "samples_per_second": 12345.6,
    "epoch": 3.0,
    "train_loss": 0.2,
    "validation_loss": 0.3,
    "validation_accuracy": 0.91,
    "epoch_seconds": 4.0,
}
STATES = ("running", "succeeded", "failed", "retrying", "waiting", "reused")
ROW = re.compile(
    r"(?P<step>\S*) +(?P<state>running|succeeded|failed|retrying|waiting|reused|succeeded \(reused\)) +"
    r"(?:\d+ x \d+ +)?(?P<time>-|\d+[dhm]\d\d[hms]|\d+s|\d+\.\d s|\d+ min \d\d s|\d+ h \d\d min)(?: |$)"
)


def result(home: RunsHome, name: str, state: str, *, seconds: float = 754.0) -> StepResult:
    """A step in a state, with the files that it has then."""
    folder = home.run("r1").step(name)
    if state in ("running", "succeeded", "failed", "retrying"):
        folder.metrics().parent.mkdir(parents=True, exist_ok=True)
        folder.metrics().write_text(json.dumps({"step": 123, "total": 300, "metrics": LOGGED}) + "\n")
    status = "succeeded" if state == "reused" else state
    found = StepResult(name, status, 0.1, seconds, None, 1, 8, 8, folder.path, {}, LOGGED if state != "waiting" else {})
    if state in ("waiting", "reused"):
        found = replace(found, started=None, seconds=0.0, reused_from="r0" if state == "reused" else None)
    return replace(found, failure=StepFailure("rank 1 ended")) if state == "failed" else found


def drawn(results: list[StepResult], home: RunsHome, width: int, height: int | None = None) -> list[str]:
    """The table as it stands on a terminal, without trailing blanks."""
    curves = LiveCurves(home)
    with io.StringIO() as text:
        table = status_table(results, width, curves, LiveProgress(), height)
        Console(file=text, width=width).print(table)
        curves.close()
        return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("pipeline", catalogue.PIPELINES)
def test_every_step_of_every_pipeline_keeps_its_row(tmp_path: Path, pipeline: str, width: int) -> None:
    names = list(read_pipeline(ROOT / "pipelines" / f"{pipeline}.yaml").steps)
    for shift in range(len(STATES)):
        home = RunsHome(tmp_path / str(shift))
        states = [STATES[(shift + number) % len(STATES)] for number in range(len(names))]
        lines = drawn([result(home, *one) for one in zip(names, states, strict=True)], home, width)
        assert len(lines) == len(names) + 1
        for line, name, state in zip(lines[1:], names, states, strict=True):
            row = ROW.match(line)
            assert row, f"{width} columns: {line!r}"
            assert cell_len(line) <= width
            assert row["step"] == name or (width == 40 and "…" in row["step"])
            assert state in row["state"]
            assert ("41%" in line) == (state in ("running", "failed", "retrying")), line
            assert ("100%" in line) == (state == "succeeded"), "what has succeeded is done, whatever it logged last"
            if width == 200 and state == "running":
                assert "validation_accuracy 0.91  loss 0.1235  epoch 3  12346 samples/s" in line


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (120, 50), (20, 4), (5, 2), (1, 1)])
def test_sixty_steps_with_wide_names_fit_into_any_terminal(tmp_path: Path, width: int, height: int) -> None:
    home = RunsHome(tmp_path)
    names = [f"訓練_{number:02}_of_a_model_with_a_name_that_has_no_end_訓練" for number in range(60)]
    states = ["succeeded"] * 40 + ["running"] * 2 + ["waiting"] * 18
    lines = drawn([result(home, *one) for one in zip(names, states, strict=True)], home, width, height)
    assert len(lines) <= max(height, 2)
    assert all(cell_len(line) <= width for line in lines)
    if width >= 40:
        rows = [ROW.match(line) for line in lines[1:-1]]
        assert all(rows), lines
        assert sum(row["state"] == "running" for row in rows if row) == 2, "what runs is shown first"
        assert re.match(rf"and {60 - len(rows)} more: \d+ succeeded", lines[-1])
        assert {"40", "41"} <= {re.findall(r"\d\d", line)[0] for line in lines[1:-1]}, "its number tells a step"


def test_a_name_is_cut_in_the_middle_and_never_a_wide_character() -> None:
    assert cut_middle("train_model_07", 20) == "train_model_07"
    assert cut_middle("train_model_07", 9) == "trai…l_07"
    for most in range(12):
        assert cell_len(cut_middle("訓練訓練訓練", most)) <= most


def test_durations_are_short_and_never_longer_than_six_letters() -> None:
    assert [short_duration(one) for one in (0.4, 59.4, 59.6, 3599, 3600, 86399, 86400, 8e6)] == [
        *("0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d00h", "92d14h"),
    ]


def test_the_time_left_follows_the_steps_that_are_done() -> None:
    now = [0.0]
    progress = LiveProgress(lambda: now[0])

    def left(done: int, at: float, attempt: int = 1) -> float | None:
        now[0] = at
        return progress.left("train", attempt, StepProgress(done, 100))

    assert left(40, 0.0) is None, "a resumed training begins with what another has done"
    assert left(50, 10.0) == pytest.approx(50.0)
    assert left(50, 10.5) == pytest.approx(49.5), "time passes between two steps"
    assert left(60, 20.0) == pytest.approx(40.0)
    slower = left(60, 45.0)
    assert slower is not None
    assert slower > 40, "a step that hangs is no step that is nearly done"
    assert left(10, 61.0, attempt=2) is None, "another attempt has another speed"
    assert progress.left("train", 2, StepProgress(10, None)) is None


def test_a_training_that_makes_no_step_is_not_said_to_end_soon() -> None:
    now = [0.0]
    progress = LiveProgress(lambda: now[0])

    def told(done: int, at: float) -> tuple[float | None, float | None]:
        now[0] = at
        looked = StepProgress(done, 100)
        return progress.left("train", 1, looked), progress.stalled("train", 1, looked)

    for done, at in ((10, 0.0), (20, 1.0), (30, 15.0), (40, 16.0)):
        told(done, at)
    left, stalled = told(40, 16.0 + 41.9)
    assert left is not None, "it has paused for 14 s before, so 42 s may be its way"
    assert stalled is None
    assert told(40, 16.0 + 42.1) == (None, pytest.approx(42.1))
    assert told(50, 60.0)[1] is None, "it goes on"
    assert told(100, 61.0)[1] is None
    assert told(100, 900.0) == (None, None), "the last step was made"
    cells = TableLine("train", "running", left=12.0, stalled=112.0).cells(TableFit(["left"]))
    assert cells["left"] == "stalled 1m52s"


STEP = """\
  step_{number:02}_with_a_long_name:
    command: >-
      mkdir -p outputs;
      for done in 1 2 3 4 5 6 7 8; do
      echo '{{"step": '$done', "total": 8, "metrics": {{"validation_accuracy": 0.91, "loss": 0.5}}}}' >> outputs/metrics.jsonl;
      printf 'line '$done' of {number:02} {filler}\\n'; sleep 0.5; done
    environment: {{image: x}}
"""
SIZES = [(120, 30), (80, 24), (62, 12), (40, 10), (100, 24)]


def check_frame(screen: Screen) -> bool:
    """Whether there is a table, the only one, of whole rows and nothing else below it."""
    text = screen.text
    heads = [number for number, line in enumerate(text) if line.startswith("step ")]
    if not heads:
        return False
    assert len(heads) == 1, f"two tables, at {screen.width} columns: {text}"
    assert not any(map(ROW.match, text[: heads[0]])), f"rows of an earlier frame: {text}"
    for line in text[heads[0] + 1 :]:
        assert not line or ROW.match(line), f"{screen.width} columns: {line!r} of {text}"
    return any(text[heads[0] + 1 :])


def test_a_terminal_that_is_resized_never_shows_half_a_row(tmp_path: Path) -> None:
    steps = "".join(STEP.format(number=number, filler="x" * 30) for number in range(2))
    (tmp_path / "many.yaml").write_text(f"type: pipeline\njobs:\n{steps}")
    ours, theirs = pty.openpty()
    screens = [Screen(*SIZES[0]), Screen(*SIZES[0], breaks_again=True)]
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", *reversed(SIZES[0]), 0, 0))
    environ = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "allranks", "run", "many.yaml", "--logs", "step_00_with_a_long_name:0"],
        cwd=tmp_path,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    sizes, seen, frames = list(SIZES[1:]), set(), 0
    try:
        while True:
            data = os.read(ours, 65536)
            for screen in screens:
                screen.feed(data)
            if select.select([ours], [], [], 0.1)[0]:
                continue  # a frame is looked at when it is whole
            if all(map(check_frame, screens)):
                frames += 1
                seen.add(screens[0].width)
            if frames >= 2 and sizes:
                frames, (columns, lines) = 0, sizes.pop(0)
                for screen in screens:
                    screen.resize(columns, lines)
                fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    except OSError:  # how Linux says that the other side was closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert seen == {columns for columns, _ in SIZES}
    printed = "".join(screens[1].lines)  # the other one has cut them
    assert "of 01" not in printed
    for done in range(1, 9):
        assert f"step_00_with_a_long_name 0 | line {done} of 00 {'x' * 30}" in printed


RETRIED = "[ -e {mark} ] && exit 0; touch {mark}; exit 3"


def test_lines_that_stay_tell_of_a_failed_attempt_and_of_how_many_there_were(tmp_path: Path) -> None:
    command = RETRIED.format(mark=tmp_path / "mark")
    (tmp_path / "p.yaml").write_text(
        f"type: pipeline\njobs:\n  train: {{command: '{command}', environment: {{image: x}}}}"
    )
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "allranks", "run", "p.yaml", "--retries", "2"],
        cwd=tmp_path,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    screen = Screen(100, 24)
    with contextlib.suppress(OSError):  # how Linux says that the other side was closed
        while data := os.read(ours, 65536):
            screen.feed(data)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    shown = "\n".join(screen.text)
    assert "train: attempt 1 of 3 failed (code error: the command ended with exit code 3), attempt 2 in 1.0 s" in shown
    assert re.search(r"^  train: succeeded, \d.*, attempt 2 of 3$", shown, re.MULTILINE), shown

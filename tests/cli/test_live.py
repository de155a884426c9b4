"""The live table of a run: its rows and columns, and what is printed above it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from allranks import catalogue
from allranks.cli.live_curves import LiveCurves
from allranks.cli.live_progress import LiveProgress
from allranks.cli.live_table import TableLine, status_table
from allranks.local.folders import RunsHome
from allranks.local.result import StepFailure, StepProgress, StepResult
from allranks.spec import read_pipeline
from allranks.wording import short_duration
from tests.cli.test_terminal import on_a_terminal

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
    r"(?P<step>\S*) +(?P<state>running|succeeded|failed|retrying|waiting|reused) +"
    r"(?:\d+ x \d+ +)?(?P<time>-|\d+[dhm]\d\d[hms]|\d+s)(?: |$)"
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


@pytest.mark.parametrize("width", [50, 80, 120, 200])
@pytest.mark.parametrize("pipeline", catalogue.PIPELINES)
def test_every_step_of_every_pipeline_has_a_row(tmp_path: Path, pipeline: str, width: int) -> None:
    names = list(read_pipeline(ROOT / "pipelines" / f"{pipeline}.yaml").steps)
    for shift in range(len(STATES)):
        home = RunsHome(tmp_path / str(shift))
        states = [STATES[(shift + number) % len(STATES)] for number in range(len(names))]
        title, *lines = drawn([result(home, *one) for one in zip(names, states, strict=True)], home, width)
        assert title.startswith("step")
        assert ("nodes x ranks" in title) == (width >= 120)
        for line, name, state in zip(lines, names, states, strict=True):
            row = ROW.match(line)
            assert row, f"{width} columns: {line!r}"
            assert cell_len(line) <= width
            assert row["step"] == name or (row["step"][-1] == "…" and name.startswith(row["step"][:-1]))
            assert state == row["state"]
            assert ("41%" in line) == (state in ("running", "failed", "retrying")), line
            assert ("100%" in line) == (state == "succeeded"), "what has succeeded is done, whatever it logged last"
            if width == 200 and state == "running":
                assert "validation_accuracy 0.91  loss 0.1235  epoch 3  12346 samples/s" in line


@pytest.mark.parametrize(("width", "height"), [(50, 10), (80, 24), (120, 50), (20, 4), (5, 2), (1, 1)])
def test_a_terminal_with_few_lines_shows_what_runs_first(tmp_path: Path, width: int, height: int) -> None:
    home = RunsHome(tmp_path)
    names = [f"{number:02}_訓練_of_a_model_with_a_name_that_has_no_end_訓練" for number in range(60)]
    states = ["succeeded"] * 40 + ["running"] * 2 + ["waiting"] * 18
    lines = drawn([result(home, *one) for one in zip(names, states, strict=True)], home, width, height)
    assert all(cell_len(line) <= width for line in lines)
    if width >= 50:
        assert len(lines) == height
        rows = [ROW.match(line) for line in lines[1:-1]]
        assert all(rows), lines
        assert [row["step"][:2] for row in rows if row][:3] == ["40", "41", "42"]
        assert lines[-1] == f"and {60 - len(rows)} more"


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
    assert TableLine("train", "running", left=12.0, stalled=112.0).cells()["left"] == "stalled 1m52s"


RETRIED = "[ -e {mark} ] && exit 0; touch {mark}; exit 3"


def test_lines_that_stay_tell_of_a_failed_attempt_and_of_how_many_there_were(tmp_path: Path) -> None:
    command = RETRIED.format(mark=tmp_path / "mark")
    (tmp_path / "p.yaml").write_text(
        f"type: pipeline\njobs:\n  train: {{command: '{command}', environment: {{image: x}}}}"
    )
    shown = on_a_terminal(100, tmp_path, "run", "p.yaml", "--retries", "2")
    assert "train: attempt 1 of 3 failed (code error: the command ended with exit code 3), attempt 2 in 1.0 s" in shown
    assert re.search(r"^  train: succeeded, \d.*, attempt 2 of 3$", shown, re.MULTILINE), shown


LOGGING = """\
type: pipeline
jobs:
  train:
    command: >-
      for line in 1 2 3; do printf '\\033[31mline '$line'\\033[0m of a log {filler}\\n'; if [ $line = 2 ]; then read shown < {pipe}; fi; done
    environment: {{image: x}}
"""


def test_logs_are_printed_above_the_table_in_whole_lines(tmp_path: Path) -> None:
    filler = "x" * 100
    (tmp_path / "p.yaml").write_text(LOGGING.format(filler=filler, pipe=tmp_path / "shown"))
    shown = on_a_terminal(80, tmp_path, "run", "p.yaml", "--logs", shows="line 2 of a log")
    for line in (1, 2, 3):
        assert f"train 0 | line {line} of a log {filler}\n" in shown

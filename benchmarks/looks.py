"""What a look costs that is taken again and again: at 100,000 points of a training, and at a list of 1,000 runs.

    python benchmarks/looks.py

A training of 100,000 steps has logged five metrics a step, and logs one more step between two looks. What follows it,
the live table's curve and progress and the served page's document, is compared with the same reading all of the file,
as it is read once a run has ended. The list of runs is compared with reading each run's document.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from side_by_side import Comparison, in_turn, keep, seconds

from allranks.cli.run_list import ListChoice, RunIndex
from allranks.cli.run_state import read_run_state
from allranks.local.folders import RunFolder, RunsHome, write_json_file
from allranks.local.logged import FollowedFiles, read_executed_curves
from allranks.local.page.document import run_document
from allranks.local.result import ProgressLook, read_progress
from allranks.local.tracking.reading import TrackingReader

POINTS, RUNS, ROUNDS = 100_000, 1_000, 9


def main() -> None:
    """Measure and keep."""
    with tempfile.TemporaryDirectory() as folder:
        home = RunsHome(Path(folder))
        keep("looks", [*_at_a_training(home), _at_many_runs(home)])


def _at_a_training(home: RunsHome) -> Iterator[Comparison]:
    run = _written_run(home, "r", "running")
    step, state = run.step("train"), json.loads(run.state.read_text())
    step.metrics().parent.mkdir(parents=True)
    step.metrics().write_text("".join(_line(number) for number in range(POINTS)))
    followed, progress = FollowedFiles(), ProgressLook(step.metrics())
    with TrackingReader(home) as reader:

        def grown(look: Callable[[], object]) -> float:
            with step.metrics().open("a") as opened:
                opened.write(_line(POINTS))
            return seconds(look)

        pairs = {
            "curves": (
                lambda: read_executed_curves(home, step, reader, followed),
                lambda: read_executed_curves(home, step, reader),
            ),
            "progress": (progress.look, lambda: read_progress(step.metrics())),
            "the served page's document": (
                lambda: run_document(run, state, reader, followed),
                lambda: run_document(run, state, reader),
            ),
        }
        for name, (ours, theirs) in pairs.items():
            yield in_turn(
                f"a look at {POINTS} points: {name}",
                ("what is new", partial(grown, ours)),
                ("all of the file", partial(grown, theirs)),
                rounds=ROUNDS,
                limit="at most 0.2",
            )


def _at_many_runs(home: RunsHome) -> Comparison:
    for number in range(RUNS):
        _written_run(home, f"20260101-{number:06}", "succeeded")
    index, choice = RunIndex(home), ListChoice(search="epochs", sort="loss", limit=50)
    return in_turn(
        f"a look at a list of {RUNS} runs",
        ("what has changed", lambda: seconds(lambda: index.choose(choice))),
        ("each run's document", lambda: seconds(lambda: [read_run_state(one) for one in home.all_runs()])),
        rounds=ROUNDS,
        limit="at most 0.5",
    )


def _written_run(home: RunsHome, run_id: str, status: str) -> RunFolder:
    """A run of three steps, with ten metrics each."""
    run = home.run(run_id)
    run.path.mkdir(parents=True)
    step = {"status": status, "seconds": 3.0, "nodes": 2, "processes": 2, "folder": str(run.step("train").path)}
    metrics = {"loss": 0.5, **{f"metric_{number}": number / 7 for number in range(9)}}
    steps = {name: {**step, "metrics": metrics} for name in ("prepare", "train", "evaluate")}
    times = {"started": 1e9, "ended": None if status == "running" else 1e9 + 4}
    about = {"run_id": run_id, "status": status, "target": "image_classification", "values": {"epochs": 3}}
    write_json_file(run.state, {**about, **times, "steps": steps})
    return run


def _line(step: int) -> str:
    metrics = {
        "loss": step % 97 / 7,
        "accuracy": 0.5,
        "learning_rate": 0.1,
        "grad_norm": 1.5,
        "images_per_second": 900.0,
    }
    return json.dumps({"step": step, "total": POINTS, "metrics": metrics}) + "\n"


if __name__ == "__main__":
    main()

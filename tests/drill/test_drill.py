"""Drills with real processes: who is struck, what is noticed, what is repeated, and that nothing is left."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.support import allranks, carrying, pipeline, start_allranks, step
from tests.waiting import wait_for

COUNTING = """
import json, os, signal, sys
from pathlib import Path
import runs

saved, rank = Path(os.environ["AZURE_ML_OUTPUT_state"]), int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
newest = saved / f"{rank}.json"
number, total = json.loads(newest.read_text())[:2] if newest.exists() else (0, 0)
Path("outputs").mkdir(exist_ok=True)
is_struck = runs.is_struck()
while number < 20:
    number, total = number + 1, total * 31 % 1000003 + number
    if rank == 0:
        with open("outputs/metrics.jsonl", "a") as metrics:
            print(json.dumps({"step": number, "total": 20, "metrics": {"total": total}}), file=metrics)
    while is_struck and number == 10:
        signal.pause()
    if number % 5 == 0 and "forget" not in sys.argv:
        aside = newest.with_suffix(".part")
        aside.write_text(json.dumps([number, total]))
        aside.replace(newest)
        if rank == 0 and "numbered" in sys.argv:
            (saved / f"step_{number}.json").write_text(json.dumps(total))
newest.write_text(json.dumps([number, total, os.getpid() if "odd" in sys.argv else 0]))
"""


RUNS = """
import os
from pathlib import Path

def is_struck():
    own = Path({folder!r}, os.environ["AZUREML_ROOT_RUN_ID"])  # names of runs begin with their time
    own.mkdir(parents=True, exist_ok=True)
    is_disturbed = sorted(own.parent.iterdir()).index(own) == {undisturbed}
    return is_disturbed and '"run_attempt_count": 1' in os.environ["AZUREML_CR_COMPUTE_CONTEXT"]
"""
"""Tells a script whether its attempt is the one to strike: the first attempt after so many undisturbed runs."""


@pytest.fixture
def counting(tmp_path: Path) -> Any:
    """A pipeline of one step on 2 x 2 ranks that count to twenty, save each fifth number, and know nothing of us."""

    def make(*arguments: str, kind: str = "pytorch", python: str = sys.executable) -> Path:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "count.py").write_text(COUNTING)
        (code / "runs.py").write_text(RUNS.format(folder=str(tmp_path / "seen"), undisturbed=1))
        more = f"code: {code}, distribution: {{type: {kind}, process_count_per_instance: 2}}, resources: {{instance_count: 2}}"
        text = step(
            f"{python} count.py {' '.join(arguments)}", outputs="state: {type: uri_folder, mode: rw_mount}", more=more
        )
        return pipeline(tmp_path, f"type: pipeline\njobs:\n  train: {text}\n")

    return make


def drilled(target: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The one document of ``allranks drill``, and that no process is left of its runs."""
    done = allranks("drill", target, *arguments, "--json", cwd=target.parent)
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    assert done.returncode == code, (document, done.stderr)
    for drill in document.get("drills", []):
        assert drill["processes_left"] == 0
        assert not [pid for run in drill["runs"] for pid in carrying(f"AZUREML_ROOT_RUN_ID={run}")]
    return document


def test_a_killed_rank_is_noticed_and_its_step_ends_as_the_undisturbed_one(counting: Any) -> None:
    found = drilled(counting(), "--kill", "rank=1@step=8")
    (drill,) = found["drills"]
    (fault,) = drill["faults"]
    assert drill["result"] == "equal", drill
    assert drill["compared"]["train"]["files_equal"] == 4
    assert 8 <= fault["struck_at_step"] <= 10
    assert fault["noticed"] is True
    assert drill["attempts"] == {"train": 2}
    assert json.loads((Path(found["folder"]) / "drill.json").read_text()) == found


def test_a_killed_engine_is_started_again_and_goes_on_from_what_was_saved(counting: Any) -> None:
    (drill,) = drilled(counting("numbered"), "--kill", "engine@step=8")["drills"]
    assert drill["result"] == "equal", drill
    assert (drill["restarted_by_drill"], drill["note"]) == ([], "")
    assert len(drill["runs"]) == 2
    assert drill["attempts"] == {"train": 2}
    assert drill["faults"][0]["noticed"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("rank=0@25%", "pytorch"), pytest.param("node=1@step=8", "mpi", marks=pytest.mark.exhaustive)],
)
def test_what_is_stopped_is_noticed_and_ended(counting: Any, fault: str, kind: str) -> None:
    (drill,) = drilled(counting(kind=kind), "--stop", fault)["drills"]
    (found,) = drill["faults"]
    assert drill["result"] == "equal", drill
    assert found["noticed"] is True
    assert drill["attempts"] == {"train": 2}


@pytest.mark.slow
def test_what_two_undisturbed_runs_differ_in_is_not_held_against_the_fault(counting: Any) -> None:
    (drill,) = drilled(counting("odd"), "--kill", "rank=1@50%", code=1)["drills"]
    assert drill["result"] == "not repeatable"
    assert "two undisturbed runs differ so, too" in drill["reason"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kill", "rank=4@1s"], "train has 4 ranks, counted from 0"),
        (["--kill", "node=2@1s"], "train has 2 nodes, counted from 0"),
        (["--kill", "eval:rank=0@1s"], "'eval' is no step"),
        (["--kill", "rank=0@step=21"], "train has 20 steps"),
        (["--kill", "rank=0@900s"], "train takes"),
        ([], "nothing strikes"),
        (["--kill", "rank=0@1s", "--stop", "rank=1@1s"], "2 faults would strike one run: a drill has one fault"),
        (["--kill", "rank=0@1s", "--corrupt"], "are no options any more"),
        (["--random", "20"], "are no options any more"),
    ],
)
def test_what_can_never_strike_is_refused(counting: Any, arguments: list[str], said: str) -> None:
    assert said in drilled(counting(), *arguments, code=2)["error"]["message"]


def test_a_script_that_logs_nothing_is_struck_by_the_clock(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "plain.py"
    script.write_text(
        "import runs, signal\nfrom pathlib import Path\nwhile runs.is_struck(): signal.pause()\n"
        "Path('outputs/result.txt').write_text('4')\n"
    )
    script.with_name("runs.py").write_text(RUNS.format(folder=str(tmp_path / "seen"), undisturbed=2))
    refused = drilled(script, "--kill", "rank=0@step=3", code=2)["error"]
    assert "plain logs no steps" in refused["message"]
    assert "@50%" in refused["hint"]
    (drill,) = drilled(script, "--kill", "rank=0@50%")["drills"]
    assert drill["result"] == "equal", drill
    assert drill["restarted_by_drill"] == ["plain"], "allranks run starts no step again that has saved nothing"
    assert "`allranks run` would not have" in drill["note"]


def test_a_drill_that_is_killed_leaves_nothing(counting: Any) -> None:
    target = counting()
    begun = start_allranks("drill", target, "--kill", "rank=1@step=8", cwd=target.parent)
    try:
        marker = f"AZURE_ML_OUTPUT_state={target.parent}"
        wait_for(lambda: carrying(marker), [begun])
    finally:
        begun.kill()
        code = begun.wait()
    wait_for(lambda: not carrying(marker))
    assert code == -signal.SIGKILL, "it had not ended before"

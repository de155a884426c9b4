"""Drills with real processes: who is struck, what is noticed, what is repeated, and that nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.local.support import allranks, carrying, command, environ, pipeline, step, wait_for

COUNTING = """
import json, os, sys, time
from pathlib import Path

saved, rank = Path(os.environ["AZURE_ML_OUTPUT_state"]), int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
newest = saved / f"{rank}.json"
number, total = json.loads(newest.read_text())[:2] if newest.exists() else (0, 0)
Path("outputs").mkdir(exist_ok=True)
while number < 20:
    number, total = number + 1, total * 31 % 1000003 + number
    time.sleep(0.05)
    if rank == 0:
        with open("outputs/metrics.jsonl", "a") as metrics:
            print(json.dumps({"step": number, "total": 20, "metrics": {"total": total}}), file=metrics)
    if number % 5 == 0 and "forget" not in sys.argv:
        aside = newest.with_suffix(".part")
        aside.write_text(json.dumps([number, total]))
        aside.replace(newest)
        if rank == 0 and "numbered" in sys.argv:
            (saved / f"step_{number}.json").write_text(json.dumps(total))
newest.write_text(json.dumps([number, total, time.time() if "clock" in sys.argv else 0]))
"""


@pytest.fixture
def counting(tmp_path: Path) -> Any:
    """A pipeline of one step on 2 x 2 ranks that count to twenty, save each fifth number, and know nothing of us."""

    def make(*arguments: str, kind: str = "pytorch", python: str = sys.executable) -> Path:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "count.py").write_text(COUNTING)
        more = f"code: {code}, distribution: {{type: {kind}, process_count_per_instance: 2}}, resources: {{instance_count: 2}}"
        text = step(
            f"{python} count.py {' '.join(arguments)}", outputs="state: {type: uri_folder, mode: rw_mount}", more=more
        )
        return pipeline(tmp_path, f"type: pipeline\njobs:\n  train: {text}\n")

    return make


def drilled(target: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The one document of ``allranks drill``, and that no process is left of its runs."""
    done = allranks("drill", target, *arguments, "--json", cwd=target.parent, timeout=120)
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
    assert 8 <= fault["struck_at_step"] < 15
    assert fault["noticed"] is True
    assert fault["noticed_after_seconds"] < 3
    assert drill["attempts"] == {"train": 2}
    assert drill["seconds_lost"] > 0
    assert json.loads((Path(found["folder"]) / "drill.json").read_text()) == found


def test_a_killed_engine_is_started_again_and_goes_on_from_what_was_saved(counting: Any) -> None:
    (drill,) = drilled(counting("numbered"), "--kill", "engine@step=8", "--kill", "node=1@step=16")["drills"]
    assert drill["result"] == "equal", drill
    assert (drill["restarted_by_drill"], drill["note"]) == ([], "")
    assert len(drill["runs"]) == 2
    assert drill["attempts"] == {"train": 3}
    assert all(fault["noticed"] for fault in drill["faults"])


def test_a_step_comes_back_whose_launchers_are_killed_alone(counting: Any) -> None:
    kills = ("--kill", "launcher=1@step=4", "--kill", "launcher=0@step=12")
    (drill,) = drilled(counting(kind="mpi"), *kills)["drills"]
    assert drill["result"] == "equal", drill
    assert drill["attempts"] == {"train": 3}
    assert all(fault["processes_struck"] == 1 and fault["noticed_after_seconds"] < 5 for fault in drill["faults"])


def test_a_stopped_rank_that_nobody_misses_is_ended_by_the_drill(counting: Any) -> None:
    (drill,) = drilled(counting(), "--stop", "rank=0@25%", "--notice-limit", "2")["drills"]
    (fault,) = drill["faults"]
    assert drill["result"] == "equal", drill
    assert fault["noticed"] is False
    assert 2 <= fault["noticed_after_seconds"] < 5
    assert fault["processes_struck"] == 1


def test_a_slow_rank_takes_longer_and_is_not_ended(counting: Any) -> None:
    (drill,) = drilled(counting(), "--slow", "rank=3:3x")["drills"]
    assert drill["result"] == "equal", drill
    assert drill["attempts"] == {"train": 1}
    assert drill["seconds_lost"] > 0.2


def test_a_disk_that_is_full_for_a_while_has_room_again(tmp_path: Path) -> None:
    script = tmp_path / "disk.py"
    script.write_text(
        "import time\nfrom pathlib import Path\nrefused = 0\nfor _ in range(20):\n    time.sleep(0.1)\n    try:\n"
        "        Path('outputs/state.bin').write_bytes(bytes(100000))\n    except OSError:\n        refused += 1\n"
        "print('refused', refused, flush=True)\n"
    )
    found = drilled(script, "--full-disk", "0.5s@0.4s")
    assert found["drills"][0]["result"] == "equal", found
    log = Path(found["folder"]) / "steps/disk/user_logs/std_log.txt"
    assert 2 <= int(log.read_text().split()[-1]) <= 8


def test_drawn_faults_are_the_same_for_the_same_seed_and_have_a_page(counting: Any) -> None:
    target = counting()
    first, second = (drilled(target, "--random", "2", "--seed", seed, "--notice-limit", "1") for seed in ("17", "17"))
    assert [drill["faults"][0]["fault"] for drill in first["drills"]] == [
        drill["faults"][0]["fault"] for drill in second["drills"]
    ]
    assert [drill["result"] for drill in first["drills"]] == ["equal", "equal"]
    page = (Path(second["folder"]) / "drill.html").read_text()
    assert "2 of 2 came back" in page
    assert first["drills"][0]["faults"][0]["fault"] in page


def test_what_two_undisturbed_runs_differ_in_is_not_held_against_the_fault(counting: Any) -> None:
    (drill,) = drilled(counting("clock"), "--kill", "rank=1@50%", code=1)["drills"]
    assert drill["result"] == "not repeatable"
    assert "two undisturbed runs differ so, too" in drill["reason"]


def test_a_damaged_checkpoint_that_a_script_cannot_read_is_found_out(counting: Any) -> None:
    (drill,) = drilled(counting(), "--kill", "rank=1@step=12", "--corrupt", code=1)["drills"]
    assert drill["result"] in ("not recovered", "different"), drill
    assert drill["faults"][0]["corrupted"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kill", "rank=4@1s"], "train has 4 ranks, counted from 0"),
        (["--kill", "node=2@1s"], "train has 2 nodes, counted from 0"),
        (["--kill", "launcher=0@1s"], "train has no launcher of its own"),
        (["--kill", "eval:rank=0@1s"], "'eval' is no step"),
        (["--kill", "rank=0@step=21"], "train has 20 steps"),
        (["--kill", "rank=0@900s"], "train takes"),
        (["--corrupt"], "--corrupt goes with --kill"),
        ([], "nothing strikes"),
        (["--kill", "rank=0@1s", "--notice-limit", "nan"], "not from 1 to 86400 seconds"),
    ],
)
def test_what_can_never_strike_is_refused(counting: Any, arguments: list[str], said: str) -> None:
    assert said in drilled(counting(), *arguments, code=2)["error"]["message"]


def test_a_script_that_logs_nothing_is_struck_by_the_clock(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import time\nfrom pathlib import Path\ntime.sleep(1)\nPath('outputs/result.txt').write_text('4')\n"
    )
    refused = drilled(script, "--kill", "rank=0@step=3", code=2)["error"]
    assert "plain logs no steps" in refused["message"]
    assert "@50%" in refused["hint"]
    (drill,) = drilled(script, "--kill", "rank=0@50%")["drills"]
    assert drill["result"] == "equal", drill
    assert drill["restarted_by_drill"] == ["plain"], "allranks run starts no step again that has saved nothing"
    assert "`allranks run` would not have" in drill["note"]


def test_a_drill_that_is_killed_leaves_nothing(counting: Any) -> None:
    target = counting()
    begun = subprocess.Popen(
        command("drill", target, "--kill", "rank=1@step=8"), cwd=target.parent, env=environ(), stdout=subprocess.DEVNULL
    )
    try:
        marker = f"AZURE_ML_OUTPUT_state={target.parent}"
        wait_for(lambda: carrying(marker))
    finally:
        begun.kill()
        code = begun.wait()
    wait_for(lambda: not carrying(marker))
    assert code == -signal.SIGKILL, "it had not ended before"

"""The engine reaps what its ranks leave behind, leaves alone what others started, and ends a rank that stays stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.local import engine, processes
from allranks.local.folders import RunsHome
from allranks.local.options import RunObserver, RunOptions
from allranks.local.plan import RunPlan
from allranks.local.signals import caught_signals
from allranks.local.stopped_ranks import LOOK_SECONDS, STOPPED_LOOKS, StoppedRanks
from allranks.request import RunRequest
from tests.local.support import pipeline, run_json, step
from tests.waiting import wait_for


def test_the_children_of_the_script_around_it_are_left_to_it() -> None:
    """`allranks.run` took the end of a child that the user's script had started: its exit code 1 became 0."""
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as child:
        wait_for(lambda: processes.is_zombie(child.pid))
        processes.sweep_orphans(set(), [])
        assert child.wait() == 1


def test_another_thread_than_the_first_may_run_a_pipeline() -> None:
    """`allranks.run` in a thread was a traceback, since signals cannot be caught there, and the run stayed running."""
    found = []

    def enter() -> None:
        with caught_signals(found.append) as descriptor:
            found.append(descriptor)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(found) == 1


class Turn:
    """The lock of engines; it counts those that have asked for it."""

    def __init__(self) -> None:
        self._lock, self.asked = engine._TURN, 0

    def __enter__(self) -> None:
        self.asked += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_runs_in_several_threads_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would reap what it takes for orphans, the other one's ranks, whose exit codes are lost then."""
    options = RunOptions(RunsHome(tmp_path), Path(sys.executable), RunRequest("", ""))
    seen, turn = [], Turn()

    def run(engine: object) -> None:
        seen.append("begin")
        wait_for(lambda: turn.asked == 3)
        seen.append("end")

    monkeypatch.setattr(engine, "_TURN", turn)
    monkeypatch.setattr(engine._Engine, "run", run)
    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(engine.run_plan, RunPlan("nothing", {}), options, RunObserver())
    assert seen == ["begin", "end"] * 3


STOPS = """
import os, signal
if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
signal.pause()
"""


@pytest.mark.parametrize("kind", ["pytorch", pytest.param("mpi", marks=pytest.mark.slow)])
def test_a_stopped_rank_of_a_foreign_script_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(STOPS)
    train = step(f"python {tmp_path}/stops.py", more=f"distribution: {{type: {kind}, process_count_per_instance: 2}}")
    failure = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{train: {train}}}\n"), cwd=tmp_path)["steps"][
        "train"
    ]["failure"]
    assert failure["message"] == (
        "rank 1 on node 0 was ended: it stands still: its process was stopped 8 s ago, and nobody has continued it"
    )


@pytest.mark.parametrize("is_continued", [True, False], ids=["slow", "stopped"])
def test_who_is_stopped_and_continued_in_turns_is_slow_and_does_not_stand_still(is_continued: bool) -> None:
    looks = count(step=LOOK_SECONDS)
    ranks = StoppedRanks(looks.__next__)
    with subprocess.Popen(["sleep", "60"]) as program:
        gangs: list[Any] = [SimpleNamespace(pids=[program.pid])]
        program.send_signal(signal.SIGSTOP)
        for _ in range(2 * STOPPED_LOOKS):
            wait_for(lambda: processes.stat_fields(program.pid)[0] in (b"T", b"Z"))
            ranks.look(gangs)
            if is_continued:
                program.send_signal(signal.SIGCONT)
                program.send_signal(signal.SIGSTOP)
        ended = program.poll()
        program.kill()
    assert ended == (None if is_continued else -signal.SIGKILL)

"""The engine reaps what its ranks leave behind, and none of the children of the script that it runs in."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allranks.local import engine, processes
from allranks.local.folders import RunsHome
from allranks.local.options import RunObserver, RunOptions
from allranks.local.plan import RunPlan
from allranks.local.signals import caught_signals
from allranks.request import RunRequest
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

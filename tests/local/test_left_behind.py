"""Processes that ranks leave behind end with the run, and a rank that does not end is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.local.watch import LATE_SECONDS, GangWatch
from tests.local.support import allranks, pipeline, step
from tests.waiting import wait_for

LEAVE = """
import os, sys, time

def leave(kind):
    if os.fork():
        return
    if kind == "group":
        os.setpgid(0, 0)
    else:
        os.setsid()
    if kind == "twice" and os.fork():
        os._exit(0)
    os.execve("/bin/sleep", ["sleep", "300"], {})

for kind in ("group", "session", "twice"):
    leave(kind)
"""


def sleeping_in(folder: Path) -> list[int]:
    """Return the processes whose working folder lies below a folder; those here have no environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder / ".allranks"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_children_with_an_empty_environment_and_a_session_of_their_own_end_with_the_run(tmp_path: Path) -> None:
    (tmp_path / "leave.py").write_text(LEAVE)
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(f'{sys.executable} leave.py', more='code: .')}}}\n")
    assert allranks("run", file, cwd=tmp_path).returncode == 0
    assert sleeping_in(tmp_path) == []


def test_a_program_that_calls_run_keeps_its_own_children(tmp_path: Path) -> None:
    """Only the command line owns what it adopts."""
    (tmp_path / "leave.py").write_text(LEAVE.replace('("group", "session", "twice")', '("group",)'))
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step(f'{sys.executable} leave.py', more='code: .')}}}\n")
    code = f"""
import subprocess, allranks
own = subprocess.Popen(["sleep", "300"], start_new_session=True, env={{}})
assert allranks.run({str(file)!r}).status == "succeeded"
assert own.poll() is None
own.kill()
"""
    from tests.helpers import run_python

    run_python(code, cwd=tmp_path)
    assert wait_for(lambda: not sleeping_in(tmp_path))


class Gang:
    """What the watch reads of a gang: rank 0 ended at second 0, rank 1 runs."""

    first_failure = None
    is_finished = only_servers_left = timed_out = False
    exits = (SimpleNamespace(ended=0.0, command=SimpleNamespace(rank=0)),)
    running = (SimpleNamespace(rank=1),)
    pids = frozenset({4711})


@pytest.mark.parametrize(("seconds", "named"), [(LATE_SECONDS - 1, False), (LATE_SECONDS, True)])
def test_a_rank_that_runs_long_after_the_others_is_named_once(
    seconds: float, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    watch, gang = watching(notes.append, lambda: seconds)
    monkeypatch.setattr(
        watch, "_executions", [SimpleNamespace(gang=gang, due=None, step=SimpleNamespace(name="train"))]
    )
    monkeypatch.setattr(watch._stopped, "look", lambda _: None)
    for execution in watch._executions:
        execution.step.host = SimpleNamespace(is_this_machine=False)
    watch.enforce_timeouts()
    watch.enforce_timeouts()
    watch.guard.close()
    assert len(notes) == named
    if named:
        assert notes[0].startswith("train: rank 1 still runs, 60 s after rank 0 has ended: `py-spy dump --pid 4711")


def watching(warn: Callable[[str], None], clock: Callable[[], float]) -> tuple[Any, Any]:
    endpoint: Any = SimpleNamespace(descriptor=-1, pids=frozenset())
    return GangWatch(f"NO_RUN={os.getpid()}", [], endpoint, warn=warn, clock=clock), Gang()

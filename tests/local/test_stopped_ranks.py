"""A rank that is stopped ends its step, whatever the script knows of us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.local import processes
from allranks.local.stopped_ranks import STOPPED_LOOKS, WATCHED_LOOKS, StoppedRanks
from tests.local.support import pipeline, run_json, step

LOOK_SECONDS = 0.02
STOPS = """
import os, signal, time
if os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["pytorch", pytest.param("mpi", marks=pytest.mark.slow)])
def test_a_stopped_rank_of_a_foreign_script_is_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text(STOPS)
    train = step(f"python {tmp_path}/stops.py", more=f"distribution: {{type: {kind}, process_count_per_instance: 2}}")
    began = time.monotonic()
    failure = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{train: {train}}}\n"), cwd=tmp_path)["steps"][
        "train"
    ]["failure"]
    assert failure["message"] == (
        "rank 1 on node 0 was ended: it stands still: its process was stopped 4 s ago, and nobody has continued it"
    )
    assert time.monotonic() - began < 30, "6 s on a machine of its own"


@pytest.mark.parametrize("is_continued", [True, False], ids=["slow", "stopped"])
def test_who_is_stopped_and_continued_in_turns_is_slow_and_does_not_stand_still(is_continued: bool) -> None:
    ranks = StoppedRanks(LOOK_SECONDS)
    with subprocess.Popen(["sleep", "60"]) as program:
        gangs: list[Any] = [SimpleNamespace(pids=[program.pid])]
        program.send_signal(signal.SIGSTOP)
        for _ in range(2 * STOPPED_LOOKS):
            while processes.stat_fields(program.pid)[0] not in (b"T", b"Z"):
                time.sleep(0.001)
            time.sleep(LOOK_SECONDS)
            ranks.look(gangs)
            if is_continued:
                program.send_signal(signal.SIGCONT)
                program.send_signal(signal.SIGSTOP)
        ended = program.poll()
        program.kill()
    assert ended == (None if is_continued else -signal.SIGKILL)


@pytest.mark.parametrize("beside", ["shared/distributed/sentry.py", "other.py"])
def test_a_rank_that_has_a_sentry_is_left_to_it_at_first(beside: str, tmp_path: Path) -> None:
    program = tmp_path / beside
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("import time; time.sleep(60)")
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, {str(program)!r}, '0']).wait()"
    ranks, looks = StoppedRanks(LOOK_SECONDS), 0
    with subprocess.Popen([sys.executable, "-c", start], start_new_session=True) as rank:
        gangs: list[Any] = [SimpleNamespace(pids=[rank.pid])]
        while not (children := processes.children_of(rank.pid)) or program.name.encode() not in command_of(children[0]):
            time.sleep(0.01)
        rank.send_signal(signal.SIGSTOP)
        while rank.poll() is None and looks < 2 * WATCHED_LOOKS:
            while processes.stat_fields(rank.pid)[0] not in (b"T", b"Z"):
                time.sleep(0.001)
            time.sleep(1.5 * LOOK_SECONDS)
            ranks.look(gangs)
            looks += 1
        os.killpg(rank.pid, signal.SIGKILL)
    assert WATCHED_LOOKS > STOPPED_LOOKS + 2
    expected = WATCHED_LOOKS if beside.endswith("sentry.py") else STOPPED_LOOKS
    assert expected <= looks <= expected + 2, "a killed process takes a moment to be gone"


def command_of(pid: int) -> bytes:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""

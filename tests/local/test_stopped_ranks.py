"""A rank that is stopped ends its step, whatever the script knows of us."""

from __future__ import annotations

import signal
import subprocess
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.local import processes
from allranks.local.stopped_ranks import LOOK_SECONDS, STOPPED_LOOKS, StoppedRanks
from tests.local.support import pipeline, run_json, step
from tests.waiting import wait_for

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

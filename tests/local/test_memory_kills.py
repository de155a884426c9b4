"""A step that the kernel has killed for want of memory: a real control group with a real limit, and the kernel's files."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.local.resources.memory_kills import (
    KillCounter,
    count_machine_kills,
    find_memory_group,
)
from tests.local.support import allranks, command, environ, pipeline, run_json, step
from tests.waiting import wait_for

LIMIT = 300 << 20
HUNGRY = """if [ "$RANK" = 1 ]; then python -S -c "held = b'x' * 2**31"; else sleep 60; fi"""
TWO_RANKS = "distribution: {type: pytorch, process_count_per_instance: 2}"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 300 MiB; skips where this machine, or whoever runs the tests, cannot make one."""
    own = find_memory_group()
    if own is None:
        pytest.skip("this machine has no control groups of memory")
    folder = own.top / f"allranks-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (folder / own.limit).write_text(str(LIMIT))
    except OSError as error:
        folder.rmdir()
        pytest.skip(f"no control group can be limited here: {error}")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def test_a_rank_that_is_killed_for_want_of_memory_is_said_to_be(small_group: Path, tmp_path: Path) -> None:
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{train: {step(HUNGRY, more=TWO_RANKS)}}}\n")
    enter = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(small_group)]
    done = subprocess.run(
        [*enter, *command("run", file, "--json")],
        cwd=tmp_path,
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    message = json.loads(done.stdout)["steps"]["train"]["failure"]["message"]
    found = re.fullmatch(
        r"rank 1 on node 0 was killed for want of memory: (it came before the first look; its control group has 314\.6 MB"
        r"|peak (\d+\.\d) MB of the 314\.6 MB that its control group has,?"
        r"(?: rank 1 (\d+\.\d) MB)?(; other processes had the rest, .*between two looks)?); next step: a smaller batch, fewer ranks \(--scale train=NODESxPROCESSES\) or more memory",
        message,
    )
    assert found, message
    if found[2] and not found[4]:  # on a busy machine it may come before a look or between two, and that is said
        assert 200 < float(found[3]) <= float(found[2]) < 314.6
    assert message in allranks("runs", "show", "latest", cwd=tmp_path).stdout
    assert message in next(tmp_path.glob(".allranks/runs/*/report.html")).read_text()


def test_a_rank_that_somebody_kills_is_not_said_to_lack_memory(tmp_path: Path) -> None:
    done = run_json(pipeline(tmp_path, f"type: pipeline\njobs: {{one: {step('kill -9 $$')}}}\n"), cwd=tmp_path)
    assert done["steps"]["one"]["failure"]["message"] == (
        "the command was killed by SIGKILL, which somebody or a program has sent: "
        "the kernel has not killed for want of memory"
    )


VERSION_2 = """low 0
high 0
max 1188
oom 5
oom_kill 4
oom_group_kill 0
"""
VMSTAT = """pgmajfault 40311
oom_kill 7
drop_pagecache 0
"""


def proc(folder: Path, cgroup: str, mounts: str) -> Path:
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/self/cgroup").write_text(cgroup)
    (folder / "proc/self/mountinfo").write_text(mounts)
    (folder / "proc/vmstat").write_text(VMSTAT)
    return folder / "proc"


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def test_version_2_counts_and_limits_of_groups_above_hold_too(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    group(top / "user.slice/run.scope", memory_events=VERSION_2, memory_max="max\n")
    group(top / "user.slice", memory_events=VERSION_2, memory_max="12884901888\n")
    mounts = f"29 22 0:26 / /proc rw - proc proc rw\n30 23 0:27 / {top} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    files = proc(tmp_path, "0::/user.slice/run.scope\n", mounts)
    found = find_memory_group(files)
    assert found is not None
    assert (found.count_kills(), found.lowest_limit()) == (4, 12 << 30)
    assert count_machine_kills(files) == 7
    (top / "user.slice/run.scope/memory.events").unlink()
    assert find_memory_group(files) is None, "the machine's own group has no such file: then /proc/vmstat counts"


def test_a_kill_explains_one_end_alone() -> None:
    counts = iter([2, 2, 3, 3, 3, 4])
    counter = KillCounter(lambda: next(counts))
    first, second = counter.mark(), counter.mark()
    assert counter.explain(first) is True
    assert counter.explain(second) is False, "that one was killed by somebody else"
    third = counter.mark()
    assert counter.explain(third) is True
    assert KillCounter(lambda: None).explain(None) is None

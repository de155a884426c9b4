"""A step that the kernel has killed for want of memory: a real control group with a real limit, and the kernel's files."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.local.gang_failure import memory_words
from allranks.local.resources.memory_kills import (
    KillCounter,
    MemoryLimit,
    count_machine_kills,
    find_memory_group,
    find_memory_limit,
)
from tests.local.support import allranks, command, environ, pipeline, run_json, step, wait_for

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


VERSION_1 = """oom_kill_disable 0
under_oom 0
oom_kill 3
"""
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


@pytest.mark.parametrize(
    ("path", "root"),
    [("/docker/ab", "/docker/ab"), ("/docker/ab", "/"), ("/../cd", "/")],
    ids=["container", "machine", "out of sight"],
)
def test_version_1_is_taken_where_both_are_mounted(tmp_path: Path, path: str, root: str) -> None:
    top = tmp_path / "memory"
    own = top / "docker/ab" if (path, root) == ("/docker/ab", "/") else top
    group(top, memory_oom_control=VERSION_1, memory_limit_in_bytes="9223372036854771712\n")
    group(own, memory_oom_control=VERSION_1, memory_limit_in_bytes="9223372036854771712\n")
    mounts = (
        f"41 31 0:38 / {tmp_path}/unified rw - cgroup2 cgroup2 rw\n"
        f"33 31 0:30 / {tmp_path}/cpuset rw - cgroup cgroup rw,cpuset\n35 31 0:32 {root} {top} rw - cgroup cgroup rw,memory\n"
    )
    found = find_memory_group(proc(tmp_path, f"4:memory:{path}\n3:cpuset:/\n1:cpu,cpuacct:/\n0::/\n", mounts))
    assert found is not None
    assert found.folder == own
    assert found.count_kills() == 3


def test_a_kill_explains_one_end_alone() -> None:
    counts = iter([2, 2, 3, 3, 3, 4])
    counter = KillCounter(lambda: next(counts))
    first, second = counter.mark(), counter.mark()
    assert counter.explain(first) is True
    assert counter.explain(second) is False, "that one was killed by somebody else"
    third = counter.mark()
    assert counter.explain(third) is True
    assert KillCounter(lambda: None).explain(None) is None


def test_a_peak_far_below_the_limit_is_not_left_unexplained() -> None:
    limit = MemoryLimit(12_000_000_000, "the machine")
    assert memory_words(11_800_000_000, limit) == "peak 11.8 GB of the 12.0 GB that the machine has"
    assert "other processes had the rest" in memory_words(3_000_000_000, limit)
    assert memory_words(None, limit) == "it came before the first look; the machine has 12.0 GB"
    assert find_memory_limit().size > 0

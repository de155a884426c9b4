"""A rank that is stopped is named within seconds, whoever waits for it and however, and all tell where they stood."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shared.distributed.sentry import is_stopped, stalled_news
from shared.distributed.wire import encode_message
from tests.helpers import ROOT, run_ranks
from tests.local.support import run_json

STOPS = """
    import os, signal, time
    {imports}
    from shared.distributed import init
    with init({framework}) as world:
        world.barrier("all are here")
        if world.rank == {stopped}:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(60)
        {waits}
"""
BARRIER = {"imports": "", "framework": "", "waits": 'world.barrier("never ends")'}
GLOO = {
    "imports": "import torch, torch.distributed as dist",
    "framework": '"torch"',
    "waits": "dist.all_reduce(torch.zeros(1))",
}
SECONDS = 20
"""That it may take here, where tests run side by side; on a machine of its own it is 5.5."""


def script(kind: dict[str, str], stopped: int) -> str:
    return STOPS.format(**kind, stopped=stopped)


@pytest.mark.parametrize(("kind", "stopped"), [(BARRIER, 3), (GLOO, 3), (GLOO, 0)], ids=["barrier", "gloo", "rank 0"])
def test_a_rank_that_is_stopped_is_named_by_all(kind: dict[str, str], stopped: int) -> None:
    ended = run_ranks(script(kind, stopped), 2, 2, timeout=SECONDS)
    name = f"rank {stopped} (node {stopped // 2}) stands still: its process was stopped 4 s ago"
    assert [rank.rank for rank in ended if name not in rank.stderr] == []
    assert ended[stopped].returncode == -signal.SIGKILL
    assert [rank.rank for rank in ended if "(most recent call first)" not in rank.stderr] == []
    assert "script.py" in ended[stopped].stderr, "where it stood"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_the_report_of_a_step_quotes_the_rank_that_was_stopped(kind: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/stop.py").write_text(textwrap.dedent(script(BARRIER, 3)))
    (tmp_path / "component.yaml").write_text(
        textwrap.dedent(f"""
            type: command
            name: stop
            version: "1"
            code: ./code
            additional_includes: [{ROOT}/shared]
            command: python stop.py
            environment: azureml:theirs:1
            distribution: {{type: {kind}, process_count_per_instance: 2}}
            resources: {{instance_count: 2}}
        """)
    )
    failure = run_json("component.yaml", cwd=tmp_path)["steps"]["stop"]["failure"]
    assert failure["message"] == (
        "rank 3 on node 1 was ended: it stands still: its process was stopped 4 s ago, and nobody has continued it"
    )
    assert (failure["rank"], failure["node"]) == (3, 1)
    assert any("stop.py" in line for line in failure["last_lines"])


def test_a_rank_that_is_continued_in_time_goes_on() -> None:
    code = """
        import os, signal, subprocess, sys
        from shared.distributed import init
        with init() as world:
            if world.rank == 1:
                subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {os.getpid()}"], start_new_session=True)
                os.kill(os.getpid(), signal.SIGSTOP)
            world.barrier("comes")
        print("done")
    """
    assert [(rank.returncode, rank.stdout) for rank in run_ranks(code, timeout=SECONDS)] == [(0, "done\n")] * 2


def test_a_rank_that_is_stopped_and_continued_in_turns_is_slow_and_goes_on() -> None:
    code = """
        import os, signal, subprocess, sys
        from shared.distributed import init
        HOLD = "for i in $(seq 11); do kill -STOP $0; sleep 0.45; kill -CONT $0; sleep 0.05; done"
        with init() as world:
            if world.rank == 1:
                subprocess.run(["setsid", "sh", "-c", HOLD, str(os.getpid())])
            world.barrier("comes")
        print("done")
    """
    assert [(rank.returncode, rank.stdout) for rank in run_ranks(code, timeout=SECONDS)] == [(0, "done\n")] * 2


def test_what_is_stopped_and_what_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        state = os.open(f"/proc/{process.pid}/stat", os.O_RDONLY)
        assert not is_stopped(state)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_stopped(state)
        process.kill()
    assert not is_stopped(state), "it is gone"
    os.close(state)


def test_of_many_messages_the_one_about_a_rank_that_stands_still_is_found() -> None:
    told = encode_message({"error": "stalled", "message": "rank 3 (node 1) stands still", "news": True})
    other = encode_message({"error": "peer", "message": 'rank 1 printed "stalled"', "news": True})
    assert stalled_news(other + told) == "rank 3 (node 1) stands still"
    assert stalled_news(other) is None
    assert stalled_news((other + told)[:-1]) is None, "its end is still to come"

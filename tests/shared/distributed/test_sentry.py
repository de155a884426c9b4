"""A rank that is stopped is named within seconds, whoever waits for it and however, and all tell where they stood."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from shared.distributed import liveness
from shared.distributed.meeting import Guest, RollCall
from shared.distributed.sentry import LIMIT, STACK_SIGNAL, News, is_stopped, place_of, stalled_news
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


def test_a_rank_with_more_open_files_than_select_takes_has_a_sentry_too() -> None:
    """As rank 0 of 1,024 has, which every rank and every sentry is connected to."""
    files = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048)); [os.dup(1) for _ in range(1100)]"
    )
    ended = run_ranks(script({**BARRIER, "imports": files}, 0), timeout=SECONDS)
    assert [rank.rank for rank in ended if "rank 0 (node 0) stands still" not in rank.stderr] == []


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
    news = News()
    assert [stalled_news(message) for message in news.feed(other + told[:-1])] == [None]
    assert [stalled_news(message) for message in news.feed(told[-1:] + other)] == ["rank 3 (node 1) stands still", None]


HANGS = """
    import time
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from shared.distributed import init, liveness

    liveness.SHORTEST_SILENCE = 3.0

    def hang():
        {hang}

    with init("torch", timeout=timedelta(minutes=1)) as world:
        liveness.limit_silence(1.0)
        for step in range(100):
            if step == 5 and world.rank == {hung}:
                hang()
            {waits}
            world.end_step()
"""


@pytest.mark.parametrize(
    ("hang", "waits", "hung"),
    [
        ("while True: pass", GLOO["waits"], 2),
        ("sum(range(10**12))", GLOO["waits"], 0),
        ("sum(range(10**12))", BARRIER["waits"], 1),
        ("time.sleep(1000)", BARRIER["waits"], 3),
    ],
    ids=["python", "native in rank 0", "native", "sleep"],
)
def test_a_rank_that_hangs_is_named_and_not_one_that_waits_for_it(hang: str, waits: str, hung: int) -> None:
    ended = run_ranks(HANGS.format(hang=hang, waits=waits, hung=hung), 2, 2, timeout=SECONDS)
    name = f"rank {hung} (node {hung // 2}) makes no progress: "
    assert [rank.rank for rank in ended if name not in rank.stderr] == []
    assert "script.py:11 (hang)" in ended[hung].stderr
    assert "It is ended; where it stood:" in ended[hung].stderr
    assert [rank.rank for rank in ended if "(most recent call first)" not in rank.stderr] == []
    assert [rank.returncode for rank in ended] == [-signal.SIGKILL] * 4


PAUSES = """
    import time
    from shared.distributed import init, liveness, sentry

    liveness.SHORTEST_SILENCE = 6.0
    with init() as world:
        liveness.limit_silence(1.0)
        for _ in range(4):
            world.end_step()
        if world.rank == {paused}:
            with liveness.silence_expected():  # as in a save
                {pause}
        world.{waits}
"""


@pytest.mark.parametrize(
    ("pause", "paused"),
    [("time.sleep(60)", 1), ("sum(range(10**12))", 1), ("sum(range(10**12))", 0)],
    ids=["sleep", "native", "native in rank 0"],
)
def test_a_rank_that_hangs_where_silence_was_announced_is_named_before_those_that_wait_give_up(
    pause: str, paused: int
) -> None:
    """They would after 12 s, by a time-out of gloo's, which names nobody; under Horovod never."""
    began = time.monotonic()
    ended = run_ranks(PAUSES.format(pause=pause, paused=paused, waits='barrier("never ends")'), timeout=SECONDS)
    took = time.monotonic() - began
    words = rf"rank {paused} \(node 0\) makes no progress: "
    assert [rank.rank for rank in ended if not re.search(words, rank.stderr)] == []
    assert re.search(words + "nothing has moved for (7|8|9|10) s, and it stands at ", ended[paused].stderr)
    assert [rank.returncode for rank in ended] == [-signal.SIGKILL] * 2
    assert took < 16, "12 s on a machine of its own, of which 2 are for the start"


@pytest.mark.parametrize(
    "meets",
    ["dist.all_reduce(torch.zeros(1))", 'world.any(False, "not finite", timeout=12.0)'],
    ids=["gloo", "control"],
)
def test_a_rank_that_hangs_in_a_pause_in_which_another_waits_for_it_is_named(meets: str) -> None:
    """As in a save that gathers what it writes, and agrees that it is finite."""
    code = f"""
        import torch
        import torch.distributed as dist
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 6.0
        with init("torch") as world:
            liveness.limit_silence(1.0)
            for _ in range(4):
                world.end_step()
            with liveness.silence_expected():
                if world.rank == 1:
                    sum(range(10**12))
                {meets}
    """
    for rank in run_ranks(code, timeout=30):
        assert re.search(r"rank 1 \(node 0\) makes no progress: nothing has moved for (7|8|9|10) s", rank.stderr)
        assert "(most recent call first)" in rank.stderr
        assert rank.returncode == -signal.SIGKILL


@pytest.mark.parametrize("meets", ["dist.all_reduce(torch.zeros(1))", 'world.barrier("save")'], ids=["gloo", "control"])
def test_a_rank_that_hangs_in_a_step_is_named_by_its_time_also_where_another_waits_for_it_in_a_pause(
    meets: str,
) -> None:
    """One has begun to validate, and the other one never comes out of its last step."""
    code = f"""
        import torch
        import torch.distributed as dist
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 8.0
        with init("torch") as world:
            liveness.limit_silence(1.0)
            for _ in range(4):
                world.end_step()
            if world.rank == 1:
                sum(range(10**12))
            with liveness.silence_expected():
                {meets}
    """
    for rank in run_ranks(code, timeout=30):
        assert re.search(r"rank 1 \(node 0\) makes no progress: nothing has moved for (8|9|10) s", rank.stderr)
        assert rank.returncode == -signal.SIGKILL


def test_who_waits_in_a_pause_for_one_that_waits_in_a_step_is_left_alone() -> None:
    """Some of the ranks gather what one of them writes, and another one waits for them in its next step."""
    code = """
        import time
        import torch
        import torch.distributed as dist
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 4.0
        with init("torch") as world:
            some = dist.new_group([0, 1])
            liveness.limit_silence(1.0)
            for _ in range(4):
                world.end_step()
            if world.rank < 2:
                with liveness.silence_expected():
                    if world.rank == 1:
                        time.sleep(6)
                    dist.all_reduce(torch.zeros(1), group=some)
            dist.all_reduce(torch.zeros(1))
            world.end_step()
    """
    ended = run_ranks(code, 1, 3, timeout=60)
    assert [(rank.returncode, rank.stderr.count("no progress")) for rank in ended] == [(0, 0)] * 3


def test_who_is_asked_where_it_stands_while_it_ends_ends_well() -> None:
    """Another rank may raise an alarm just then; Python has taken back its handlers while libraries still end."""
    code = """
        import ctypes, socket
        from shared.distributed import liveness

        here, there = socket.socketpair()
        for world in "first", "second":
            assert liveness.start_sentry(f"rank 0 of a {world} world", here)
        libc = ctypes.CDLL(None)
        libc.on_exit(libc.getchar, None)  # which runs last of all, until the test lets it end
        print("ends", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as rank:
        assert rank.stdin
        assert rank.stdout
        assert rank.stdout.readline() == "ends\n"
        while catches(rank.pid, STACK_SIGNAL):
            time.sleep(0.01)
        os.kill(rank.pid, STACK_SIGNAL)
        rank.stdin.close()
    assert rank.returncode == 0


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: https://man7.org/linux/man-pages/man5/proc_pid_status.5.html."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert caught
    return bool(int(caught[1], 16) >> (number - 1) & 1)


def test_a_pause_is_no_hang_while_nobody_waits_for_its_end() -> None:
    code = PAUSES.replace("6.0", "2.0").format(pause="time.sleep(7)", paused="world.rank", waits='barrier("comes")')
    ended = run_ranks(code, timeout=60)
    assert [(rank.returncode, rank.stderr.count("no progress")) for rank in ended] == [(0, 0)] * 2


def test_a_rank_that_hangs_alone_is_ended_when_the_others_have_gone() -> None:
    code = """
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 2.0
        with init() as world:
            liveness.limit_silence(1.0)
            if world.rank == 1:
                while True:  # in its first step, for which nobody knows how long it takes
                    pass
            world.barrier("never ends", timeout=1)
    """
    waited, hung = run_ranks(code, timeout=SECONDS)
    assert "timed out waiting for rank 1" in waited.stderr
    assert re.search(r"rank 1 \(node 0\) makes no progress: nothing has moved for [2-6] s", hung.stderr)
    assert hung.returncode == -signal.SIGKILL


def test_what_takes_long_by_itself_is_no_hang() -> None:
    code = """
        import time
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 2.0
        with init() as world:
            liveness.limit_silence(1.0)
            time.sleep(3.5)  # the first steps compile
            for _ in range(4):
                world.end_step()
            world.once(lambda: time.sleep(3.5), name="prepare", scope="job")
            world.end_step()
            for _ in range(7):
                time.sleep(0.5)
                liveness.note_progress()  # as a file does that is read
            world.end_step()
            liveness.expect_silence()  # as before a validation
            time.sleep(3.5)
    """
    ended = run_ranks(code, timeout=60)
    assert [(rank.returncode, rank.stderr.count("no progress")) for rank in ended] == [(0, 0)] * 2


def test_who_has_left_the_world_is_watched_no_more() -> None:
    code = """
        import time
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 1.0
        with init() as world:
            liveness.limit_silence(1.0)
            for _ in range(4):
                world.end_step()
        time.sleep(3)
        print([started.poll() for started in liveness._started])
    """
    for ranks in 2, 1:
        ended = run_ranks(code, 1, ranks, timeout=SECONDS)
        assert [(rank.returncode, rank.stdout) for rank in ended] == [(0, "[0]\n")] * ranks


PDB = """
import os, pdb, sys, threading
asked, answer = os.pipe()
threading.Timer(8, os.write, (answer, b"continue\\n")).start()
pdb.Pdb(stdin=os.fdopen(asked), stdout=sys.stderr).set_trace()
"""
GDB = """
import subprocess, sys
HOLD = "import ctypes, os, sys, time; trace = ctypes.CDLL(None).ptrace; rank = int(sys.argv[1]); " \\
    "trace(16, rank, None, None); os.waitpid(rank, 0x40000000); time.sleep(8); trace(17, rank, None, None)"
subprocess.Popen([sys.executable, "-c", HOLD, str(os.getpid())])
time.sleep(1)
"""


@pytest.mark.parametrize(
    ("debugger", "held", "ranks"), [(PDB, 1, 2), (GDB, 0, 2), (PDB, 0, 1)], ids=["pdb", "gdb", "alone"]
)
def test_a_rank_that_somebody_holds_in_a_debugger_is_not_ended_nor_are_those_that_wait(
    debugger: str, held: int, ranks: int
) -> None:
    """gdb is played by its system call, ptrace."""
    code = f"""
        import os, time
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 2.0
        with init() as world:
            liveness.limit_silence(1.0)
            for step in range(6):
                if step == 4 and world.rank == {held}:
                    exec({debugger!r})
                world.barrier("step", timeout=60)
                world.end_step()
    """
    ended = run_ranks(code, 1, ranks, timeout=60)
    assert [(rank.returncode, rank.stderr.count("no progress")) for rank in ended] == [(0, 0)] * ranks, ended


def test_a_rank_that_is_the_only_one_is_watched_too() -> None:
    code = """
        import os, signal, time
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 2.0
        with init() as world:
            liveness.limit_silence(1.0)
            for step in range(5):
                world.end_step()
            with liveness.silence_expected():
                time.sleep(4)
            {hang}
    """
    (hung,) = run_ranks(code.format(hang="sum(range(10**12))"), 1, 1, timeout=SECONDS)
    assert re.search(
        r"rank 0 \(node 0\) makes no progress: nothing has moved for [2-6] s, and it stands at ", hung.stderr
    )
    assert "It is ended; where it stood:" in hung.stderr
    assert hung.returncode == -signal.SIGKILL
    (stopped,) = run_ranks(
        code.format(hang="os.kill(os.getpid(), signal.SIGSTOP); time.sleep(60)"), 1, 1, timeout=SECONDS
    )
    assert "rank 0 (node 0) stands still: its process was stopped 4 s ago" in stopped.stderr
    assert stopped.returncode == -signal.SIGKILL


def test_a_coordinator_is_not_blamed_for_who_counts_no_steps() -> None:
    members: dict[tuple[str, int], Guest] = {}
    for role, rank in ("worker", 0), ("worker", 1), ("ps", 0):
        for name in role, f"sentry of {role}":
            members[name, rank] = Guest(member=(name, rank), node=rank)
    call = RollCall(members, time.monotonic() + 5)
    silent = {"moving": False, "waits": False, "watched": False, "overdue": False, "debugged": False, "steps": 0}
    waiting = {**silent, "busy": 0.0, "seconds": 310.0, "place": "/shared/distributed/wire.py:112 (receive_message)"}
    coordinator = "/tensorflow/python/distribute/coordinator/cluster_coordinator.py:9 (join)"
    trains = {"waits": True, "watched": True, "steps": 40, "place": coordinator}
    call.add(members["sentry of worker", 0], {**waiting, **trains})
    call.add(members["sentry of worker", 1], waiting)
    call.add(members["sentry of ps", 0], {**waiting, "busy": 1.0})
    assert call.verdict().startswith("ps 0 (node 0) makes no progress: ")


def test_a_step_in_a_debugger_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    page = memoryview(bytearray(32)).cast("Q")
    monkeypatch.setattr(liveness, "_moves", page)
    monkeypatch.setattr(liveness, "_longest_ms", 5000)
    limits = []
    for _ in range(4):
        liveness.note_step()
        limits.append(page[LIMIT])
    liveness.expect_silence()
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "pydevd", sys)
        liveness.note_step()
        limits.append(page[LIMIT])
    liveness.note_step()
    assert [*limits, page[LIMIT]] == [0, 0, 5000, 5000, 0, 5000]


STACKS = """Thread 0x00007f8fa5dad6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f8fc9207b80 (most recent call first):
  File "/code/train.py", line 33 in loss
  File "/code/train.py", line 90 in <module>

Thread 0x00007f8fa65ae6c0 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
"""


def test_where_the_main_thread_stands_is_read_from_its_stack() -> None:
    assert place_of(STACKS, "00007f8fc9207b80") == "/code/train.py:33 (loss)"
    assert place_of(STACKS, "0000000000000001") == ""
    assert place_of("", "00007f8fc9207b80") == ""
    assert (
        place_of('Stack (most recent call first):\n  File "/code/a.py", line 3 in wait\n', "1") == "/code/a.py:3 (wait)"
    )


STANDS = """
    import json, signal, socket, threading, time
    from shared.distributed import liveness, sentry

    def deep(depth):
        return json.loads(json.dumps(depth)) if depth == 0 else deep(depth - 1)

    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, [sentry.STACK_SIGNAL])  # one that comes while the last is heeded waits
        while True:
            deep(30)

    here, there = socket.socketpair()
    liveness.start_sentry("rank 0 (node 0)", here)
    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    print("stands", flush=True)
    time.sleep(60)
"""


def test_who_is_asked_where_it_stands_again_and_again_goes_on() -> None:
    """Ranks are asked that go on afterwards: to write the stacks of threads that run crashes one time in some hundred."""
    command = [sys.executable, "-c", textwrap.dedent(STANDS)]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as rank:
        assert rank.stdout
        assert rank.stdout.readline() == "stands\n"
        files = Path(f"/proc/{rank.pid}/fd").iterdir()
        (stacks,) = (file for file in files if "/memfd:stacks" in str(file.readlink()))
        for _ in range(1500):
            before = stacks.stat().st_size
            os.kill(rank.pid, STACK_SIGNAL)
            while rank.poll() is None and stacks.stat().st_size == before:
                time.sleep(0.0001)
            assert rank.poll() is None
        rank.kill()

"""What the heartbeat thread of a rank does at which time, and that real ranks which are stopped or hang are named."""

from __future__ import annotations

import faulthandler
import signal
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.distributed import liveness
from shared.distributed.liveness import STUCK_SECONDS, Heartbeat
from tests.helpers import ROOT, finish, run_ranks, started_ranks
from tests.local.support import run_json


class Watch:
    """A heartbeat whose connection, end and watchdog are the test's; time 0 is that of its start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, channel: str = "heartbeat of worker") -> None:
        self.posted: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.ended: list[str] = []
        self.printed: list[str] = []
        self.watchdog: list[float | None] = []
        self.beating = Heartbeat(SimpleNamespace(is_ending=threading.Event()), "rank 1 (node 0)", channel, 2)  # type: ignore[arg-type]
        self.zero = self.beating._moved_at
        if channel:
            self.beating._channel = SimpleNamespace(  # type: ignore[assignment]
                received=self._received, post=lambda message: self.posted.append(message["state"])
            )
        monkeypatch.setattr(liveness._progress, "heartbeat", self.beating)
        monkeypatch.setattr(liveness, "print_line", self.printed.append)
        monkeypatch.setattr(self.beating, "_end", lambda text, *_: self.ended.append(text))
        monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: self.watchdog.append(seconds))
        monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: self.watchdog.append(None))

    def _received(self) -> list[dict[str, Any]]:
        answers, self.answers = self.answers, []
        return answers

    def look(self, seconds: float) -> None:
        self.beating.look(self.zero + seconds)

    def answer(self) -> None:
        self.answers.append({"ok": None})


@pytest.fixture(autouse=True)
def _own_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_progress", liveness._Progress(longest=300.0))


def steps(count: int) -> None:
    for _ in range(count):
        liveness.note_step()


def test_rank_0_hears_once_a_second_and_only_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.look(1)
    watch.look(2)
    assert len(watch.posted) == 1
    watch.answer()
    watch.look(3)
    assert [beat["silent"] for beat in watch.posted] == [1.0, 3.0]
    assert {name: watch.posted[0][name] for name in ("steps", "limit", "longest")} == {
        "steps": 0, "limit": 0.0, "longest": 300.0
    }  # fmt: skip
    assert __file__ in watch.posted[0]["place"], "the main thread is the test's"


def test_a_step_is_due_after_the_first_ones_and_not_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    steps(2)
    assert watch.posted == []
    steps(2)
    liveness.expect_silence()
    steps(1)
    with liveness.silence_expected():
        pass
    assert [beat["limit"] for beat in watch.posted] == [300.0, 0.0, 300.0, 0.0, 300.0], "rank 0 hears at once"
    assert watch.watchdog == [450.0, 600.0, 450.0, 600.0, 450.0]


def test_the_watchdog_counts_anew_while_the_heartbeat_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.look(1)
    assert watch.watchdog == [None], "before the first steps anything may take long"
    steps(3)
    watch.look(2)
    liveness.expect_silence()
    watch.look(3)
    assert watch.watchdog == [None, 450.0, 450.0, 600.0, 600.0]


def test_a_step_that_begins_after_a_long_start_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.look(1000)
    monkeypatch.setattr(liveness, "time", SimpleNamespace(monotonic=lambda: watch.zero + 1000.5))
    steps(3)
    assert [(beat["silent"], beat["limit"]) for beat in watch.posted] == [(1000.0, 0.0), (0.0, 300.0)]


def test_a_step_in_a_debugger_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    with monkeypatch.context() as inside:
        inside.setitem(sys.modules, "pydevd", sys)
        steps(5)
    assert liveness._progress.limit == 0
    steps(1)
    watch.answer()

    def prompt() -> None:
        watch.look(1000)

    prompt.__code__ = prompt.__code__.replace(co_filename="/lib/python3.11/pdb.py")
    prompt()
    assert watch.posted[-1]["limit"] == 0
    assert watch.posted[-1]["silent"] == 0
    assert watch.watchdog[-1] is None


def test_a_rank_that_is_the_only_one_ends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, channel="")
    watch.look(1000)
    steps(3)
    watch.look(1001)
    watch.look(1300)
    assert watch.ended == []
    watch.look(1301)
    assert watch.ended[0].startswith(
        "rank 1 (node 0) makes no progress: nothing has moved for 300 s, and it stands at "
    )


@pytest.mark.parametrize(
    ("named", "ended"), [("rank 1 (node 0)", "It is ended"), ("rank 0 (node 0)", "This rank is ended with it")]
)
def test_a_rank_ends_when_it_hears_that_one_hangs(named: str, ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.answers.append({"error": "stalled", "message": f"{named} stands still: it was stopped.", "news": True})
    watch.look(1)
    assert watch.ended == [f"{named} stands still: it was stopped. {ended}; where it stood:"]


def test_a_rank_in_which_nothing_moves_after_another_has_gone_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    watch.answers.append({"error": "peer", "message": "rank 0 (node 0) has died.", "news": True})
    watch.look(100)
    watch.look(100 + STUCK_SECONDS - 1)
    liveness.note_progress()  # it works on until it meets the others
    watch.look(100 + STUCK_SECONDS)
    assert watch.ended == []
    watch.look(100 + 2 * STUCK_SECONDS)
    assert watch.ended[0].startswith("rank 0 (node 0) has died. This rank has stood still for 15 s since, ")


def test_rank_0_that_does_not_answer_is_named_before_collectives_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    steps(3)
    for second in (1, 8, 9, 10, 595):
        watch.look(second)
    assert watch.ended == []
    assert [line.partition(" (native")[0] for line in watch.printed] == [
        "distributed: rank 0 (node 0): it has not answered for 9 s"
    ]
    watch.look(596)
    assert watch.ended[0].startswith("rank 0 (node 0) makes no progress: it has not answered for ")


HANGS = """
    import os, signal, threading
    from datetime import timedelta
    import torch
    import torch.distributed as dist
    from shared.distributed import hang, init, liveness

    liveness.SHORTEST_SILENCE = 4.0
    liveness.MISSING_SECONDS = hang.MISSING_SECONDS = 2.0

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
NATIVE = "sum(range(10**12))"
LOOP = "while True: pass"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
GLOO = "dist.all_reduce(torch.zeros(1))"
BARRIER = 'world.barrier("never ends")'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hang", "waits", "hung"),
    [
        (LOOP, GLOO, 2),
        (NATIVE, GLOO, 1),
        pytest.param(NATIVE, BARRIER, 3, marks=pytest.mark.exhaustive),
        ("threading.Event().wait()", BARRIER, 0),
    ],
    ids=["python", "native", "native, control plane", "sleep"],
)
def test_a_rank_that_hangs_is_named_and_not_one_that_waits_for_it(hang: str, waits: str, hung: int) -> None:
    ended = run_ranks(HANGS.format(hang=hang, waits=waits, hung=hung), 2, 2)
    name = f"rank {hung} (node {hung // 2}) makes no progress: "
    assert [rank.rank for rank in ended if name not in rank.stderr and (rank.rank != hung or hang != NATIVE)] == []
    assert ", line 12 in hang" in ended[hung].stderr, "faulthandler's watchdog ends what keeps Python's lock"
    assert [rank.rank for rank in ended if "(most recent call" not in rank.stderr] == []
    assert [rank.returncode for rank in ended] == [1] * 4


@pytest.mark.slow
def test_the_others_hear_that_rank_0_is_gone_where_it_keeps_pythons_lock() -> None:
    ended = run_ranks(HANGS.format(hang=NATIVE, waits=GLOO, hung=0), 1, 2)
    assert ended[0].stderr.count("Timeout (0:00:06)!") == 1
    assert ", line 12 in hang" in ended[0].stderr
    assert "Rank 0 (node 0) is gone" in ended[1].stderr
    assert [rank.returncode for rank in ended] == [1, 1]


@pytest.mark.parametrize("stopped", [3, 0])
def test_a_rank_that_is_stopped_is_named_at_once_and_ended_at_the_limit(stopped: int) -> None:
    with started_ranks(HANGS.format(hang=STOP, waits=GLOO, hung=stopped), 2, 2) as ranks:
        for rank in ranks:
            if rank.rank != stopped:
                rank.process.wait()
        told = [rank.stderr for rank in ranks if rank.rank != stopped]
    name = f"distributed: rank {stopped} (node {stopped // 2})"
    noticed = "it has not answered for" if stopped == 0 else "its heartbeat has been missing for"
    assert f"{name}: {noticed}" in told[0], "rank 0 tells, or the others if it is the one"
    assert [text for text in told if f"{name} makes no progress: " not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pytorch", pytest.param("mpi", marks=pytest.mark.exhaustive)])
def test_the_report_of_a_step_quotes_the_rank_that_hangs(kind: str, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/stop.py").write_text(textwrap.dedent(HANGS.format(hang=LOOP, waits=BARRIER, hung=3)))
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
    assert failure["message"].startswith("rank 3 on node 1 was ended: it makes no progress: nothing has moved for ")
    assert (failure["rank"], failure["node"]) == (3, 1)
    assert any("stop.py" in line for line in failure["last_lines"])


LOST = """
    import threading
    from pathlib import Path
    from shared.distributed import init, liveness
    from tests.waiting import wait_for
    liveness.STUCK_SECONDS = 2.0
    with init() as world:
        print("in", flush=True)
        if world.rank == 2:
            wait_for(lambda: liveness.note_progress() or Path("ended").exists())
            world.barrier("the end")
        else:
            threading.Event().wait()  # as a collective of gloo that does not notice
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_waits_for_one_that_has_gone_is_ended_and_one_that_works_is_not(
    victim: int, tmp_path: Path
) -> None:
    with started_ranks(LOST, 1, 3, cwd=tmp_path) as ranks:
        for rank in ranks:
            rank.wait_for("in")
        ranks[victim].kill()
        ranks[1 - victim].process.wait()
        (tmp_path / "ended").touch()
        stuck, working = finish([ranks[1 - victim], ranks[2]])
    assert ranks[victim].process.returncode == -signal.SIGKILL
    assert stuck.returncode == 1
    said = "rank 1 (node 0) has died: its process ended" if victim else "Rank 0 (node 0) is gone"
    assert said in stuck.stderr
    assert "This rank has stood still for 2 s" in stuck.stderr
    assert "Current thread" in stuck.stderr
    assert "stood still" not in working.stderr
    assert said in working.stderr or "Rank 0 (node 0) is gone" in working.stderr


def test_who_has_left_the_world_is_watched_no_more() -> None:
    code = """
        import threading
        from shared.distributed import init

        for _ in range(2):
            with init() as world:
                for _ in range(4):
                    world.end_step()
            for thread in threading.enumerate():
                if thread.name == "allranks-heartbeat":
                    thread.join()
        world.end_step()
        print("left")
    """
    ended = run_ranks(code, 1, 1)
    assert [(rank.returncode, rank.stdout) for rank in ended] == [(0, "left\n")], ended[0].stderr


@pytest.mark.slow
def test_a_forked_child_ends_and_the_watchdog_goes_on() -> None:
    code = """
        import os, sys
        from shared.distributed import init, liveness

        liveness.SHORTEST_SILENCE = 4.0
        with init() as world:
            liveness.limit_silence(1.0)
            for _ in range(4):
                world.end_step()
            child = os.fork()
            if not child:
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            sum(range(10**12))
    """
    (ended,) = run_ranks(code, 1, 1)
    assert ended.stdout == "3\n", ended.stderr
    assert ended.returncode == 1
    assert "Timeout (" in ended.stderr

"""A rank of mpirun that was forked is one to mpirun, to the engine and to its script, from its start to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.local.folders import StepFolder
from allranks.local.resources.notes import read_rank_uses
from tests.local.support import carrying, pipeline, step
from tests.local.warm.support import Warmth, is_alive, log_of, wait_until
from tests.local.warm.test_same_as_cold import ENDS, LOOK, without_run

OPTIONS = ("--distribution", "mpi", "--retries", "0")
TWO = ("--scale", "1x2", *OPTIONS)
OF_THE_RUN = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI", "OMPI_FILE_LOCATION", "PMIX_NAMESPACE")
"""Variables that differ from run to run, as do those that begin with PMIX_SERVER_."""
OF_MPIRUN = ("leads", "targets", "descriptors")
"""What a rank of mpirun has otherwise: it is in the group of a shell, and its input is a pipe that has ended."""
_KILLED = re.compile(r"\S*/rank.sh: line .*")


def looked(result: dict[str, Any], rank: int) -> dict[str, Any]:
    """What a rank has found, without what is of its run or of mpirun."""
    state = dict(without_run(log_of(result, rank).splitlines()[0], result))
    for kind in ("variables", "shown"):
        state[kind] = {
            name: text
            for name, text in state[kind].items()
            if name not in OF_THE_RUN and not name.startswith("PMIX_SERVER_")
        }
    return {name: found for name, found in state.items() if name not in OF_MPIRUN}


def test_it_finds_what_a_rank_of_mpirun_finds_on_each_node(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK.replace('"began"', '"host": os.uname().nodename, "began"'))
    (tmp_path / "helper.py").write_text("")
    arguments = ("look.py", "--scale", "2x2", *OPTIONS, "--", "--words", "two words")
    cold = warmth.run(*arguments, cwd=tmp_path, BASH_ENV="/dev/null")
    warmth.warm_up(*arguments, cwd=tmp_path)
    early = warmth.forked()
    warm = warmth.run(*arguments, cwd=tmp_path)
    assert warmth.forked() - early == 4, warmth.state()
    for rank in range(4):
        before, after = looked(cold, rank), looked(warm, rank)
        for kind in ("variables", "shown"):
            assert before[kind].pop("BASH_ENV") == "/dev/null"
        assert after == before
    assert len({log_of(result, rank).splitlines()[1] for result in (cold, warm) for rank in range(4)}) == 8


@pytest.mark.slow
def test_it_ends_as_a_rank_of_mpirun_does(warmth: Warmth, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    pass")
    script = tmp_path / "ends.py"
    script.write_text("import numpy\n")
    one = ("--scale", "1x1", *OPTIONS)
    warmth.warm_up("ends.py", *one, cwd=tmp_path)
    for name, text in ENDS.items():
        script.write_text(f"import numpy\n{text}\n")
        early = warmth.forked()
        results = [warmth.run("ends.py", *one, cwd=tmp_path, **more) for more in ({}, {"BASH_ENV": "/dev/null"})]
        assert warmth.forked() == early + 1, (name, warmth.state())
        warm, cold = (
            (result["exit"], failure(result), _KILLED.sub("killed", log_of(result)).replace(result["run_id"], "RUN"))
            for result in results
        )
        assert warm == cold, name


def failure(result: dict[str, Any]) -> Any:
    """What the run says of the step that has failed."""
    (one,) = result["steps"].values()
    return (one.get("failure") or {}).get("message")


WAITS = """
import os, signal, subprocess, sys, time
from pathlib import Path
import numpy
here, rank = Path(sys.argv[1]), os.environ["OMPI_COMM_WORLD_RANK"]
signal.signal(signal.SIGUSR2, lambda *_: (here / f"told_{rank}").touch())
if "saves" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: ((here / f"saved_{rank}").touch(), sys.exit(0)))
(here / f"{rank}.pid").write_text(str(os.getpid()))
while not (here / "go").exists():
    sum(range(10000))
"""


class Waiting:
    """A run whose two forked ranks wait for a file."""

    def __init__(self, warmth: Warmth, folder: Path) -> None:
        self.warmth, self.folder = warmth, folder
        self.engine: subprocess.Popen[str] | None = None

    def start(self, *words: str) -> list[int]:
        """Start it; the processes of its ranks."""
        early = self.warmth.forked()
        self.engine = self.warmth.start("waits.py", *TWO, "--", str(self.folder), *words, cwd=self.folder)
        notes = [self.folder / f"{rank}.pid" for rank in (0, 1)]
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        assert self.warmth.forked() == early + 2
        return [int(note.read_text()) for note in notes]

    def result(self) -> dict[str, Any]:
        """Of its end."""
        assert self.engine is not None
        return dict(json.loads(self.engine.communicate(timeout=60)[0]))


@pytest.fixture
def waiting(warmth: Warmth, tmp_path: Path) -> Iterator[Waiting]:
    """It has been warmed up; nothing of it stays."""
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "go").touch()
    warmth.warm_up("waits.py", *TWO, "--", str(tmp_path), cwd=tmp_path)
    for name in ("go", "0.pid", "1.pid"):
        (tmp_path / name).unlink()
    one = Waiting(warmth, tmp_path)
    yield one
    if one.engine is not None:
        one.engine.kill()
        one.engine.communicate()


def stand_ins(ranks: list[int]) -> list[int]:
    """The processes that stand for forked ranks, by what those were started with."""
    (run_id,) = {
        word for word in Path(f"/proc/{ranks[0]}/environ").read_text().split("\0") if word.startswith("AZUREML_RUN_ID=")
    }
    return [pid for pid in carrying(run_id) if Path(f"/proc/{pid}/comm").read_text() == "allranks-rank\n"]


@pytest.mark.parametrize("victim", ["engine", "rank", "stand-in"])
def test_whatever_is_killed_nothing_stays(waiting: Waiting, victim: str) -> None:
    ranks = waiting.start()
    beside = stand_ins(ranks)
    assert len(beside) == 2
    assert waiting.engine is not None
    os.kill({"engine": waiting.engine.pid, "rank": ranks[1], "stand-in": beside[1]}[victim], signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, [*ranks, *beside])), 10)
    if victim == "rank":
        assert failure(waiting.result()).startswith("rank 1 on node 0 ended with exit code 137 (killed by SIGKILL)")
    assert is_alive(waiting.warmth.template()), "the next run may have it"


@pytest.mark.parametrize("victim", ["template", "keeper"])
def test_what_it_was_forked_from_is_killed_and_the_step_is_run_without(waiting: Waiting, victim: str) -> None:
    ranks = waiting.start()
    (waiting.folder / "0.pid").unlink()
    os.kill(waiting.warmth.template() if victim == "template" else waiting.warmth.state()["pid"], signal.SIGKILL)
    wait_until((waiting.folder / "0.pid").exists)
    (waiting.folder / "go").touch()
    result = waiting.result()
    assert (result["status"], result["steps"]["waits"]["attempts"]) == ("succeeded", 2)
    assert not any(map(is_alive, ranks))


def test_it_is_killed_with_its_template_also_where_nobody_else_sees_that(waiting: Waiting) -> None:
    ranks = waiting.start()
    beside = stand_ins(ranks)
    for pid in beside:
        os.kill(pid, signal.SIGSTOP)
    os.kill(waiting.warmth.template(), signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, ranks)), 2)
    assert all(map(is_alive, beside)), "they were stopped, and have killed nobody"


def test_it_is_told_what_mpirun_is_told_and_of_a_stop(waiting: Waiting) -> None:
    ranks = waiting.start("saves")
    for pid in stand_ins(ranks):
        os.kill(pid, signal.SIGUSR2)
    wait_until(lambda: all((waiting.folder / f"told_{rank}").exists() for rank in (0, 1)))
    assert waiting.engine is not None
    waiting.engine.send_signal(signal.SIGINT)
    assert waiting.result()["status"] == "cancelled"
    assert all((waiting.folder / f"saved_{rank}").exists() for rank in (0, 1))


def test_what_it_has_used_is_counted_while_it_runs_and_at_its_end(waiting: Waiting) -> None:
    waiting.start()
    time.sleep(1.5)
    (waiting.folder / "go").touch()
    result = waiting.result()
    folder = StepFolder(Path(result["steps"]["waits"]["folder"]))
    assert all(read_rank_uses(folder)[rank].cpu_seconds > 0.5 for rank in (0, 1))
    samples = [json.loads(line) for line in (folder.path / "resources.jsonl").read_text().splitlines()]
    held = [one for one in samples if one["of"] == "rank" and one.get("rss_bytes", 0) > 2**24]
    assert {one["rank"] for one in held} == {0, 1}, samples


@pytest.mark.slow
def test_it_is_stopped_and_named(waiting: Waiting) -> None:
    ranks = waiting.start()
    os.kill(ranks[1], signal.SIGSTOP)
    assert failure(waiting.result()) == (
        "rank 1 on node 0 was ended: it stands still: its process was stopped 4 s ago, and nobody has continued it"
    )
    assert not any(map(is_alive, ranks))


WRITES = """
import os, sys
from pathlib import Path
import numpy
try:
    Path(sys.argv[1], os.environ["OMPI_COMM_WORLD_RANK"]).touch()
except OSError as error:
    print(error.strerror)
print(Path(sys.argv[1], "row").read_text())
"""


def test_it_cannot_write_to_what_a_rank_of_mpirun_cannot_write_to(warmth: Warmth, tmp_path: Path) -> None:
    code, data = tmp_path / "code", tmp_path / "data"
    code.mkdir()
    data.mkdir()
    (code / "writes.py").write_text(WRITES)
    (data / "row").write_text("1 2")
    train = step(
        "python writes.py ${{inputs.data}}",
        inputs="data: {type: uri_folder, path: ../data}",
        more="code: ., distribution: {type: mpi, process_count_per_instance: 2}",
    )
    file = pipeline(code, f"type: pipeline\njobs: {{train: {train}}}\n")
    cold = warmth.warm_up(file, cwd=tmp_path)
    early = warmth.forked()
    warm = warmth.run(file, cwd=tmp_path)
    assert warmth.forked() == early + 2, warmth.state()
    assert [log_of(warm, rank) for rank in (0, 1)] == [log_of(cold, rank) for rank in (0, 1)]
    assert [warm["steps"]["train"]["status"], failure(warm)] == [cold["steps"]["train"]["status"], failure(cold)]

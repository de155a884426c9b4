"""Attempts that fail: what kind of thing has ended them, which steps are started again by themselves, what was lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.local.checkpoints import newest_checkpoint
from allranks.local.folders import StepFolder
from allranks.local.goodput import RestartSummary, read_attempt_steps, restart_words, summarise_attempts
from tests.local.support import allranks, environ, pipeline, run_json, step
from tests.waiting import wait_for

KEPT = "out: {type: uri_folder, mode: rw_mount}"
WRITE = "n=$(ls ${{outputs.out}} | wc -l); echo whole > ${{outputs.out}}/checkpoint-$((n + 1)); "
ONCE = "echo whole > ${{outputs.out}}/checkpoint-1; "
DIE = "kill -KILL $$"
BEGAN = 1.8e9


def jobs(folder: Path, **commands: str) -> Path:
    """A pipeline of steps that have nothing to do with each other, each with a folder that outlives its attempts."""
    lines = "".join(f"  {name}: {step(command, outputs=KEPT)}\n" for name, command in commands.items())
    text = f"type: pipeline\nsettings: {{continue_on_step_failure: true}}\njobs:\n{lines}"
    return pipeline(folder, text)


def test_causes_are_told_apart(tmp_path: Path) -> None:
    causes = {
        "code": ("exit 1", "code error"),
        "crash": ("kill -SEGV $$", "code error"),
        "input": ("exit 2", "refused input"),
        "disk": ("echo 'OSError: [Errno 28] No space left on device'; exit 1", "out of disk"),
        "quota": ("echo 'OSError: [Errno 27] File too large'; exit 1", "out of disk"),
        "memory": ("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1", "out of memory"),
        "mended": ("echo 'No space left on device'; printf 'a\\nb\\nc\\nd\\nKeyError: 1\\n'; exit 1", "code error"),
        "taken": ("kill -TERM $$", "preempted"),
        "agreed": ("exit 143", "preempted"),
        "killed": (DIE, "lost process"),
        "watchdog": (
            "printf 'Timeout (0:07:30)!\\nThread 0x1 (most recent call first):\\n  File \"a.py\", line 1 in f\\n'; exit 1",
            "hung",
        ),
        "hung": ("echo 'distributed: rank 0 (node 0) stands still: stopped. It is ended'; " + DIE, "hung"),
        "silent": ("echo 'PeerError: rank 1 (node 0) makes no progress: nothing has moved for 300 s.'; exit 1", "hung"),
        "told": (
            "echo 'PeerError: rank 1 (node 0) has died: its process ended without a word.'; exit 1",
            "lost process",
        ),
    }
    file = jobs(tmp_path, **{name: command for name, (command, _) in causes.items()})
    result = run_json(file, cwd=tmp_path)
    assert {name: each["failure"]["cause"] for name, each in result["steps"].items()} == {
        name: cause for name, (_, cause) in causes.items()
    }
    shown = allranks("runs", "show", "latest", cwd=tmp_path).stdout
    assert "was killed by SIGTERM (preempted)" in " ".join(shown.split())
    kept = json.loads((Path(result["steps"]["taken"]["folder"]) / "step.json").read_text())
    assert [one["cause"] for one in kept["attempt_times"]] == ["preempted"]


def test_a_step_that_gets_further_is_started_again_by_itself(tmp_path: Path) -> None:
    file = jobs(
        tmp_path,
        further=WRITE + f"[ $n = 2 ] || {DIE}",
        nothing_kept=DIE,
        error=WRITE + "exit 1",
        refused=WRITE + "exit 2",
        stuck=ONCE + DIE,
        memory=ONCE + "echo MemoryError; exit 1",
    )
    result = run_json(file, "--events", "events.jsonl", cwd=tmp_path)
    assert {name: each["attempts"] for name, each in result["steps"].items()} == {
        "further": 3,
        "nothing_kept": 1,
        "error": 1,
        "refused": 1,
        "stuck": 4,  # one that brought something, then three that did not
        "memory": 2,  # the second one found the same wall
    }
    further = result["steps"]["further"]
    assert (further["status"], further["restarts"]) == ("succeeded", 2)
    assert further["restart_causes"] == ["lost process", "lost process"]
    assert (Path(further["folder"]) / "attempts/2/user_logs/std_log.txt").is_file()
    page = (Path(result["run_dir"]) / "report.html").read_text()
    assert "restarted 2 times (lost process 2x)" in page
    assert "restarted 2 times (lost process 2x)" in allranks("runs", "show", "latest", cwd=tmp_path).stdout


def test_none_is_started_again_where_that_was_ruled_out(tmp_path: Path) -> None:
    file = jobs(tmp_path, further=WRITE + f"[ $n = 2 ] || {DIE}")
    again = run_json(file, "--retries", "0", cwd=tmp_path)["steps"]["further"]
    assert (again["status"], again["attempts"]) == ("failed", 1)
    done = allranks("run", file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "attempt 1 failed (lost process: the command was killed by SIGKILL" in done.stdout
    assert "attempt 2 in 1.0 s" in done.stdout


def own_checkpoint(folder: Path, number: int, *, whole: bool = True) -> None:
    place = folder / f"step-{number:08d}"
    place.mkdir(parents=True)
    (place / "state.json").write_text("{}" if whole else "")
    (place / "manifest.json").write_text(json.dumps({"step": number, "files": {"state.json": {"bytes": 2}}}))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("checkpoint-120", 120),
        ("epoch=3-step=120.ckpt", 120),
        ("global_step7", 7),
        ("iter_0000120", 120),
        ("model_epoch_3.pt", 3),
        ("checkpoint.pt", None),
        ("notes-2026.txt", None),
    ],
)
def test_checkpoints_of_others_are_known_by_their_names(tmp_path: Path, name: str, number: int | None) -> None:
    (tmp_path / name).touch()
    assert newest_checkpoint([tmp_path]) is None, "it is empty"
    (tmp_path / name).write_text("whole")
    assert newest_checkpoint([tmp_path, tmp_path / "missing"]) == number


def test_a_checkpoint_of_ours_counts_when_it_is_whole(tmp_path: Path) -> None:
    own_checkpoint(tmp_path, 20)
    own_checkpoint(tmp_path, 40, whole=False)
    (tmp_path / "step-00000060").mkdir()
    assert newest_checkpoint([tmp_path]) == 20


def attempt(folder: Path, steps: range, seconds_each: float, first: float, continued: int | None = None) -> StepFolder:
    """The folder of an attempt that began at BEGAN, made its first step after so many seconds, and logs each one."""
    found = StepFolder(folder)
    found.metrics().parent.mkdir(parents=True)
    found.logs.mkdir(parents=True)
    lines = [f"continuing from /x/step-{continued:08d}: step {continued}, epoch 1"] if continued is not None else []
    found.log(0).write_text("\n".join(["distributed: hello", *lines, ""]))
    entries = [{"time": BEGAN + first + n * seconds_each, "step": number} for n, number in enumerate(steps)]
    found.metrics().write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"step": 99, "ti')
    return found


def test_steps_that_were_made_again_are_lost_and_only_kept_ones_count(tmp_path: Path) -> None:
    one = read_attempt_steps(attempt(tmp_path / "1", range(10, 60, 10), 10.0, 20.0), BEGAN)
    two = read_attempt_steps(attempt(tmp_path / "2", range(40, 101, 10), 10.0, 20.0, continued=30), BEGAN)
    assert one is not None
    assert two is not None
    assert (one.first, one.last, two.first, two.last) == (0, 50, 30, 100)
    summary = summarise_attempts([(70.0, "preempted", one), (90.0, "", two)], 2)
    assert summary.lost_steps == 20
    assert summary.goodput == pytest.approx((30.0 + 70.0) / 160.0, abs=0.01)
    assert restart_words(summary) == "restarted once (preempted), 20 steps made again, goodput 62 %"
    assert restart_words(RestartSummary()) == ""


def test_what_anybody_may_write_does_no_harm(tmp_path: Path) -> None:
    folder = StepFolder(tmp_path)
    folder.metrics().parent.mkdir(parents=True)
    assert read_attempt_steps(folder, BEGAN) is None
    odd: list[Any] = [
        [],
        None,
        {"step": True, "time": 1},
        {"step": -1, "time": 1},
        {"step": 2**70, "time": 1},
        {"step": 1},
    ]
    folder.metrics().write_text("".join(json.dumps(one) + "\n" for one in odd) + "[" * 5000)
    assert read_attempt_steps(folder, BEGAN) is None
    folder.metrics().write_text('{"step": 5, "time": 0}\n')
    found = read_attempt_steps(folder, BEGAN)
    assert found is not None
    assert summarise_attempts([(0.0, "", found)], 1).goodput is None


PATIENT = """\
import sys
from allranks.cli.main import main
from allranks.local import watch
watch._NODE_SECONDS = float(sys.argv.pop(1))
sys.exit(main())
"""


@pytest.mark.parametrize(("victims", "cause", "patience"), [([2, 3], "lost node", "300"), ([1], "lost process", "0.2")])
def test_a_node_is_told_from_one_of_its_ranks(victims: list[int], cause: str, patience: str, tmp_path: Path) -> None:
    """The engine sees the end of one before the other one is killed."""
    script = "echo $$ > ${{outputs.out}}/$RANK; sleep 600"
    more = "distribution: {type: pytorch, process_count_per_instance: 2}, resources: {instance_count: 2}"
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{train: {step(script, outputs=KEPT, more=more)}}}\n")
    called = [sys.executable, "-c", PATIENT, patience, "run", file, "--json"]
    with subprocess.Popen(called, cwd=tmp_path, env=environ(), stdout=subprocess.PIPE, text=True) as engine:
        pids = {rank: wait_for(lambda rank=rank: pid_of(tmp_path, rank), [engine]) for rank in range(4)}
        for rank in victims:
            os.kill(pids[rank], signal.SIGKILL)
            wait_for(lambda rank=rank: not Path(f"/proc/{pids[rank]}").exists())
        failure = json.loads(engine.communicate()[0])["steps"]["train"]["failure"]
    assert (failure["cause"], failure["rank"] in victims) == (cause, True)


def pid_of(folder: Path, rank: int) -> int | None:
    """What a rank has written, once it has."""
    texts = [path.read_text().strip() for path in folder.glob(f".allranks/work/*/outputs/out/{rank}")]
    return int(texts[0]) if texts and texts[0] else None


LINE = "echo terminate called without an active exception >&2"
ABORT = "kill -ABRT $$"
TWO = "distribution: {type: pytorch, process_count_per_instance: 2}"


def test_aborts_while_python_ended_are_repeated_and_others_are_failures(tmp_path: Path) -> None:
    once = f"test $RANK = 0 || test -e {tmp_path}/flag || {{ touch {tmp_path}/flag; echo done; {LINE}; {ABORT}; }}"
    commands = {
        "once": step(once, more=TWO),
        "always": step(f"bash -c '{LINE}; {ABORT}'; exit $?"),  # the outer shell says "Aborted" after it
        "silent": step(ABORT),
        "amid": step(f"{LINE}; echo more; {ABORT}"),
        "other": step(f"{LINE}; exit 3"),
    }
    steps = "\n".join(f"          {name}: {text}" for name, text in commands.items())
    file = pipeline(
        tmp_path,
        f"""
        type: pipeline
        settings: {{continue_on_step_failure: true}}
        jobs:
{steps}
        """,
    )
    result = run_json(file, cwd=tmp_path)
    assert result["exit"] == 1
    found = {
        name: (each["status"], each["attempts"], each.get("aborts_at_exit", 0))
        for name, each in result["steps"].items()
    }
    assert found == {
        "once": ("succeeded", 2, 1),
        "always": ("failed", 3, 2),
        "silent": ("failed", 1, 0),
        "amid": ("failed", 1, 0),
        "other": ("failed", 1, 0),
    }
    messages = {name: (each["failure"] or {}).get("message", "") for name, each in result["steps"].items()}
    assert "(killed by SIGABRT) while Python ended" in messages["always"]
    assert messages["silent"] == "the command was killed by SIGABRT"
    kept = Path(result["steps"]["once"]["folder"]) / "attempts/1/user_logs/std_log_process_1.txt"
    assert kept.read_text() == "done\nterminate called without an active exception\n"

    (tmp_path / "flag").unlink()
    file = pipeline(tmp_path, f"type: pipeline\njobs: {{once: {commands['once']}}}\n", "one.yaml")
    shown = allranks("run", file, "--no-cache", cwd=tmp_path)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "attempt 1 failed (rank 1 on node 0 was killed by SIGABRT while Python ended" in shown.stdout + shown.stderr
    assert "attempt repeated 1 times" in shown.stdout + shown.stderr

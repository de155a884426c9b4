"""What ranks print is shown while they run: whole lines, each with its step and rank, and none is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from allranks.cli.log_choice import LogChoice
from allranks.cli.log_lines import LogLines
from allranks.cli.log_stream import LogStream
from allranks.local.folders import StepFolder
from allranks.local.result import StepResult
from tests.cli.conftest import Called
from tests.helpers import ROOT
from tests.local.support import command, environ
from tests.waiting import wait_for

RANKS = """\
type: pipeline
jobs:
  train:
    type: command
    component:
      type: command
      code: ./code
      environment: {{image: x}}
      command: python print.py
      distribution: {{type: pytorch, process_count_per_instance: {ranks}}}
"""


def pipeline(folder: Path, script: str, ranks: int = 2) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "print.py").write_text(script)
    (folder / "ranks.yaml").write_text(RANKS.format(ranks=ranks))


def piped(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A run of the pipeline whose standard output is a pipe."""
    return subprocess.Popen(
        command("run", "ranks.yaml", *arguments), cwd=folder, stdout=subprocess.PIPE, env=environ(), text=True
    )


def lines_of(output: str, rank: int) -> list[str]:
    mark = f"train {rank} | "
    return [line.removeprefix(mark) for line in output.split("\n") if line.startswith(mark)]


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([b"one\ntw", b"o\n"], ["one", "two"]),
        ([b"dos\r", b"\n"], ["dos"]),
        ([b"  1%|\r 50%|", b"\r100%|\n"], ["100%|"]),
        ([b"100%|\r      \r\n"], ["100%|"]),
        ([b"\x1b[31mred\x1b[0m \x1b[2K\x1b]0;title\x07\x1b[Aup\n"], ["red up"]),
        ([b"a\x00b\xff\x07\n"], ["ab\ufffd"]),
        (["é".encode()[:1], "é\n".encode()[1:]], ["é"]),
        ([b"--password hunter2\n"], ["--password ***"]),
        ([b"\n\n"], ["", ""]),
    ],
)
def test_bytes_become_lines(parts: list[bytes], shown: list[str]) -> None:
    lines = LogLines()
    assert [line for part in parts for line in lines.feed(part, 0.0)] + lines.end() == shown


def test_colours_stay_where_they_are_wanted() -> None:
    assert LogLines(styled=True).feed(b"\x1b[1;31mred\x1b[A\x1b[K\r\n", 0.0) == ["\x1b[1;31mred\x1b[0m"]


def test_a_line_without_an_end_is_shown_after_a_moment_and_its_end_is_no_further_line() -> None:
    lines = LogLines()
    assert lines.feed(b"waiting ...", 0.0) == []
    assert lines.late(0.5) == []
    assert lines.late(1.5) == ["waiting ..."]
    assert lines.feed(b"\nnext\n", 2.0) == ["next"]


def test_a_long_line_without_an_end_takes_little_memory_and_loses_nothing() -> None:
    lines, text = LogLines(), "0123456789é" * 1000
    shown = [line for _ in range(60) for line in lines.feed(text.encode(), 0.0)]
    assert max(map(len, shown)) <= 2**16
    assert "".join([*shown, *lines.end()]) == text * 60


def test_of_more_than_a_terminal_takes_whole_lines_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    folder, shown = StepFolder(tmp_path), []
    folder.logs.mkdir()
    stream = LogStream(LogChoice(others=True), lambda *told: shown.extend(told[2]), most=1000)
    result = StepResult("train", "running", 0.0, 0.0, None, 1, 1, 1, tmp_path, {})
    stream.changed(result)
    with folder.log(0).open("w") as log:
        log.write("first\nhalf of")
        log.flush()
        stream.look()
        log.writelines(f"line {number:05}\n" for number in range(1000))
    stream.changed(replace(result, status="succeeded"))
    assert shown[:2] == ["first", "half of"]
    assert re.fullmatch(r"\(\d{2},\d{3} bytes are not shown; all are in .*std_log_process_0.txt\)", shown[2])
    assert shown[3:] == [f"line {number:05}" for number in range(1000 - len(shown[3:]), 1000)]
    assert len(shown[3:]) == 1000 // len("line 00000\n")


PRINTS = """\
import os, sys
rank = os.environ["RANK"]
for number in range(40):
    print(f"line {number} of rank {rank}", flush=True)
sys.stdout.buffer.write(bytes(range(128, 256)) + b"\\n" + b"x" * 1_000_000 + b"\\nlast, without an end")
"""


def test_a_pipe_gets_every_line_of_every_rank(tmp_path: Path) -> None:
    pipeline(tmp_path, PRINTS)
    with piped(tmp_path) as run:
        output = run.communicate()[0]
    assert run.returncode == 0
    for rank in (0, 1):
        lines = lines_of(output, rank)
        assert lines[:40] == [f"line {number} of rank {rank}" for number in range(40)]
        assert "".join(lines[41:]) == "x" * 1_000_000 + "last, without an end"
    whole = output.split("\n")
    ended = next(number for number, line in enumerate(whole) if line.startswith("  train: succeeded"))
    assert max(number for number, line in enumerate(whole) if line.startswith("train ")) < ended


def test_a_rank_that_is_chosen_alone_and_a_document_that_stays_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Called]
) -> None:
    pipeline(tmp_path, "print('hello')")
    monkeypatch.chdir(tmp_path)
    assert lines_of(cli("run", "ranks.yaml", "--logs", "none", "--no-cache").out, 0) == []
    one = cli("run", "ranks.yaml", "--logs", "train:1", "--no-cache").out
    assert (lines_of(one, 0), lines_of(one, 1)) == ([], ["hello"])
    done = cli("run", "ranks.yaml", "--json", "--logs", "--no-cache")
    assert done.json["status"] == "succeeded"
    assert sorted(line for line in done.err.split("\n") if "|" in line) == ["train 0 | hello", "train 1 | hello"]


def test_what_a_failed_attempt_has_printed_is_shown_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Called]
) -> None:
    pipeline(tmp_path, "import os; print('attempt'); raise SystemExit(os.environ['RANK'] == '1')")
    monkeypatch.chdir(tmp_path)
    failed = cli("run", "ranks.yaml", "--retries", "1")
    assert (failed.code, lines_of(failed.out, 1)) == (1, ["attempt", "attempt"])


@pytest.mark.parametrize(
    ("logs", "message"),
    [("trian", "there is no step 'trian' (did you mean 'train'?)"), ("train:2", "'2' is no rank of the step")],
)
def test_logs_of_what_is_not_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Called], logs: str, message: str
) -> None:
    pipeline(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    called = cli("run", "ranks.yaml", "--logs", logs)
    assert (called.code, called.out) == (2, "")
    assert f"--logs {logs}: {message}" in called.err


def working_in(folder: Path) -> list[str]:
    """The folders below this one that some process works in."""
    return [link for link in map(cwd_of, Path("/proc").glob("[0-9]*")) if link.startswith(str(folder))]


def cwd_of(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


def test_a_reader_that_is_slow_holds_up_neither_ranks_nor_their_end(tmp_path: Path) -> None:
    script = """\
import os, signal
for number in range(5_000):
    print("a line that is a hundred letters long " + "x" * 60, number, flush=number % 100 == 0)
open(f"done-{os.environ['RANK']}", "w").close()
if os.environ["RANK"] == "0":
    signal.pause()
raise SystemExit(3)
"""
    pipeline(tmp_path, script)
    with piped(tmp_path) as run:
        assert run.stdout is not None
        found = wait_for(lambda: list(tmp_path.glob(".allranks/runs/*/steps/train/nodes/*/work/done-1")))
        wait_for(lambda: not working_in(found[0].parents[3]))  # rank 0 has been ended with rank 1
        output = run.communicate()[0]
    assert run.returncode == 1
    assert len(lines_of(output, 1)) == 5_000


def documented_fields() -> dict[str, set[str]]:
    """The fields of each event, from the page's table."""
    table = (ROOT / "docs" / "command-line.md").read_text().partition("| event |")[2]
    rows = [line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `")]
    named = {name.strip(" `"): fields.partition(": for each")[0] for name, _, fields in rows}
    return {
        name: set(re.findall(r"`(\w+)`", fields)) - {"steps" if name == "step" else ""}
        for name, fields in named.items()
    }


LOGS = """\
import json, os, sys
if os.environ["RANK"] == "0":
    for step in range(1, 4):
        with open("outputs/metrics.jsonl", "a") as file:
            file.write(json.dumps({"step": step, "total": 3, "metrics": {"loss": 1 / step}}) + "\\n")
        open(GATE).read()
print("done")
"""


def test_events_are_json_lines_that_equal_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Called]
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pipeline(tmp_path, LOGS.replace("GATE", repr(str(gate))))
    events = []
    with piped(tmp_path, "--events", "--logs", "train:0") as run:
        assert run.stdout is not None
        for line in run.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "progress":
                gate.write_text("")  # each step of the training waits until its progress is told
    assert run.returncode == 0
    assert [one["event"] for one in events if one["event"] not in ("metric", "progress")] == [
        *("run_started", "step", "log", "step", "run_ended"),
    ]
    assert all(one["time"].endswith("Z") for one in events)
    for one in events:
        assert one.keys() - {"event", "time"} == documented_fields()[one["event"]]
    assert [one["time"] for one in events] == sorted(one["time"] for one in events)
    started, ended = events[0], events[-1]
    assert (started["schema"], ended["status"], ended["exit_code"]) == (1, "succeeded", 0)
    monkeypatch.chdir(tmp_path)
    document = cli("runs", "show", started["run_id"], "--json").json
    assert all(document[name] == value for name, value in ended["result"].items())
    step = dict(ended["result"]["steps"]["train"])
    points = [[one["at"], one["value"]] for one in events if one["event"] == "metric" and one["metric"] == "loss"]
    assert points == step.pop("curves")["loss"]
    for name in ("details", "resources"):  # what the page shows of it, read when the run has ended
        step.pop(name)
    assert [one["result"] for one in events if one["event"] == "step"][-1] == step
    progress = [(one["done"], one["total"]) for one in events if one["event"] == "progress"]
    assert progress == [(1, 3), (2, 3), (3, 3)]
    log = next(one for one in events if one["event"] == "log")
    assert (log["step"], log["rank"], log["line"]) == ("train", 0, "done")

    again = cli("run", "ranks.yaml", "--events", "events.jsonl", "--json")
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert told[-1]["result"] == again.json
    assert [[one["at"], one["value"]] for one in told if one["event"] == "metric"] == points, "of a reused step too"
    both = cli("run", "ranks.yaml", "--events", "--json")
    assert (both.code, bool(both.out)) == (2, True)
    assert "no/such/events: No such file" in cli("run", "ranks.yaml", "--events", "no/such/events").err

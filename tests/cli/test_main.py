from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allranks.cli.main import VERBS
from allranks.local.folders import RunFolder
from tests.local.support import ROOT, command
from tests.waiting import TIMEOUT


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_verb(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    called = cli(*arguments)
    assert called.code == 0
    assert [line.split()[0] for line in called.out.splitlines() if line.startswith("  ")] == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_its_own_help(cli: Callable[..., Any], verb: str) -> None:
    called = cli(verb, "--help")
    assert called.code == 0
    assert called.out.startswith(f"usage: allranks {verb}")


@pytest.mark.parametrize(("typo", "meant"), [("lst", "list"), ("shwo", "show"), ("cpoy", "copy"), ("LIST", "list")])
def test_a_typo_in_a_verb_offers_the_nearest(cli: Callable[..., Any], typo: str, meant: str) -> None:
    called = cli(typo)
    assert called.code == 2
    assert f"{typo!r} is no verb of allranks (did you mean {meant!r}?)" in called.err
    assert "Verbs: list, show" in called.err
    assert called.out == ""


def test_a_file_in_the_place_of_the_verb_is_what_to_run(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert "To run it: `allranks run train.py`." in cli("train.py").err
    assert "Write train.py." in cli("run", "train").err
    assert "Write --scale 2x2." in cli("run", "image_classification", "2x2").err
    assert "For example: --scale 2x4," in cli("run", "train.py", "--scale", "2").err


def test_an_error_is_one_message_without_a_traceback(cli: Callable[..., Any]) -> None:
    called = cli("show", "train_dpp")
    assert called.code == 2
    assert called.err.splitlines() == [
        "error: 'train_dpp' is no component or pipeline of the library (did you mean 'train_ddp'?).",
        "hint: Try `allranks list`.",
    ]


@pytest.mark.parametrize("arguments", [("show", "train_dpp", "--json"), ("show", "--json"), ("lst", "--json")])
def test_with_json_an_error_is_one_document(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    called = cli(*arguments)
    assert called.code == 2
    assert set(called.json["error"]) == {"kind", "message", "hint"}
    assert called.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "--jsn"), "unrecognized arguments: --jsn (did you mean '--json'?)"),
        (("runs", "logs", "latest", "a", "--folow=1"), "(did you mean '--follow'?)"),
        (("show",), "NAME"),
        (
            ("run", "image_classification", "--epochs", "5"),
            "--epochs is an input of image_classification and no option.",
        ),
        (("run", "--epochs=5", "image_classification"), "hint: Write epochs=5. See"),
        (
            ("submit", "image_classification", "--epoch", "5"),
            "unrecognized arguments: --epoch 5 (did you mean epochs=5?)",
        ),
        (("run", "image_classification", "--train.clip-norm", "5"), "hint: Write train.clip_norm=5. See"),
        (("run", "image_classification", "--step", "train"), "(did you mean '--steps'?)"),
        (("run", "no_such_pipeline", "--epochs", "5"), "hint: An input is given as NAME=VALUE. See"),
        (("runs", "lost"), "'lost' is no command of `allranks runs` (did you mean 'logs'?)"),
        (("env", "biuld"), "(did you mean 'build'?)"),
        (("env", "zzz"), "Commands: "),
    ],
)
def test_a_wrong_argument_exits_with_2_and_one_message(
    cli: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    called = cli(*arguments)
    assert called.code == 2
    assert message in called.err
    assert called.err.startswith("error: ")
    assert re.search(rf"hint: .*See `allranks {arguments[0]}( logs)? --help`\.", called.err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", ""), "an argument is empty."),
        (("submit", "image_classification", "--dry-run", "--compute", ""), "--compute is empty."),
        (("runs", "--runs-dir=", "list"), "--runs-dir is empty."),
        (("run", "train_ddp", "data=", "--dry-run"), "data: is empty: a path is missing behind the =."),
        (("register", "train.py", "--dry-run"), "'train.py' is a script."),
        (("run", "check_cluster", "--runs-dir", __file__), f"the runs folder {__file__} is a file."),
    ],
)
def test_what_is_empty_or_of_another_kind_is_never_taken_for_a_default(
    cli: Callable[..., Any], arguments: tuple[str, ...], message: str
) -> None:
    called = cli(*arguments)
    assert called.code == 2
    assert f"error: {message}" in called.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command("list"), cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


def test_ctrl_c_is_no_traceback(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "r1"
    (run / "steps" / "train" / "user_logs").mkdir(parents=True)
    (run / "steps" / "train" / "user_logs" / "std_log.txt").write_text("hello\n")
    state = {"run_id": "r1", "status": "running", "steps": {"train": {"status": "running"}}}
    (run / "run.json").write_text(json.dumps(state))
    RunFolder(run).lock()
    follow = command("runs", "logs", "r1", "train", "--follow", "--runs-dir", tmp_path)
    process = subprocess.Popen(follow, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "hello\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (130, "interrupted\n")


LOADED_BY_VERBS = """\
import sys
from allranks.cli.main import main
for line in ("--version", "list", "show train_ddp", "lint", "runs"):
    main(line.split())
    print(*sys.modules, file=sys.stderr)
"""


def test_verbs_that_only_read_import_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED_BY_VERBS], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "azure.ai.ml", "mlflow", "numpy", "rich", "jinja2", "importlib.metadata"}
    assert [heavy.intersection(line.split()) for line in done.stderr.splitlines()] == [set()] * 5

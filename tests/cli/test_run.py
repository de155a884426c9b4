"""What `allranks run` says at the end, to somebody who has to go on from there."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PIPELINE = """\
type: pipeline
jobs:
  train:
    command: {command}
    environment: {{image: x}}
    distribution: {{type: pytorch, process_count_per_instance: 2}}
"""


@pytest.mark.parametrize("options", [[], ["--runs-dir", "my runs"]])
def test_the_end_of_a_failed_run_names_the_command_that_goes_on(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(PIPELINE.format(command="kill -KILL $$"))
    failed = cli("run", "mine.yaml", *options)
    assert failed.code == 1
    assert ": 1 step, in" in failed.out
    assert "2 ranks, 1 node x 2" in failed.out
    assert "was killed by SIGKILL, which somebody or a program has sent" in failed.err
    logs = shlex.split(failed.err.partition("all logs: allranks ")[2].splitlines()[0])
    assert cli(*logs).code == 0
    (tmp_path / "mine.yaml").write_text(PIPELINE.format(command="echo better"))
    again = shlex.split(failed.out.partition("to resume")[2].partition("allranks ")[2].splitlines()[0])
    resumed = cli(*again, *options)
    assert resumed.code == 0, resumed.err
    assert "to resume" not in resumed.out
    assert "better" in cli("runs", "logs", "latest", "train", *options).out


def test_a_wrong_value_names_the_pipeline_s_file(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("inputs: {epochs: 1}\n" + PIPELINE.format(command="echo hello"))
    called = cli("run", "mine.yaml", "epoch=3")
    assert (called.code, called.out) == (2, "")
    assert "'epoch' is no input of mine.yaml (did you mean 'epochs'?)." in called.err
    assert not (tmp_path / ".allranks").exists()

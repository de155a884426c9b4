"""Files that are looked at while they grow: each line is read once, whatever becomes of the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.local.folders import StepFolder
from allranks.local.logged import LoggedFiles
from allranks.local.metrics_file import MetricsFollower, read_metrics


def line(step: int, **metrics: float) -> str:
    return json.dumps({"step": step, "total": 100, "metrics": metrics or {"loss": step / 2}}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> StepFolder:
    folder = StepFolder(tmp_path / "step")
    folder.metrics().parent.mkdir(parents=True)
    return folder


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


def steps(files: LoggedFiles) -> list[float]:
    """The steps of the loss; progress is read by itself and has to say the same."""
    curve = files.read_curves().get("loss", [])
    assert files.read_progress().step == (curve[-1][0] if curve else None)
    return [at for at, _ in curve]


def test_every_way_to_cut_a_file_into_looks_reads_the_same(folder: StepFolder) -> None:
    text = line(1) + "no JSON\n\n" + line(2, loss=1.0, naïve=3.0) + "12\n" + line(3).rstrip("\n")
    whole = text.encode()
    folder.metrics().write_bytes(whole)
    expected = list(read_metrics(folder.metrics()))
    assert [entry.step for entry in expected] == [1, 2, 3]
    for cut in range(len(whole)):
        folder.metrics().write_bytes(whole[:cut])
        follower = MetricsFollower(folder.metrics())
        first, was_anew = follower.read_new()
        with folder.metrics().open("ab") as opened:
            opened.write(whole[cut:])
        second, is_anew = follower.read_new()
        assert [*first, *second] == expected, cut
        assert not was_anew
        assert not is_anew
        assert follower.read_new() == ([], False)


def replaced(file: Path, text: str) -> None:
    other = file.with_name("other")
    other.write_text(text)
    other.replace(file)


def written_over(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.mark.parametrize("how", [replaced, written_over])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_a_file_that_is_another_one_is_read_from_its_start(
    folder: StepFolder, how: Callable[[Path, str], None], count: int
) -> None:
    """It is shorter than what was read, as long, and longer."""
    files = LoggedFiles(folder)
    folder.metrics().write_text("".join(line(step, loss=9.0) for step in (11, 12, 13)))
    assert steps(files) == [11, 12, 13]
    how(folder.metrics(), "".join(line(step) for step in range(31, 31 + count)))
    assert steps(files) == [*range(31, 31 + count)]
    append(folder.metrics(), line(90))
    assert steps(files) == [*range(31, 31 + count), 90]


def test_lines_that_nobody_can_read_or_show_do_no_harm(folder: StepFolder) -> None:
    """They ended the engine, each in a traceback: a name with half a character, and brackets without an end."""
    folder.metrics().write_text("[" * 200_000 + "\n" + '{"step": 1, "metrics": {"a\\ud83d": 1.0}}\n')
    (entry,) = read_metrics(folder.metrics())
    assert entry.metrics == {"a?": 1.0}

"""Two executions' outputs: equal to the bit, equal but for times, or different."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from allranks.drill.comparing import OutputComparison, compare_outputs


def compared(folder: Path, name: str, first: object, second: object) -> OutputComparison:
    """What is found of one file that two executions have written so."""
    for side, content in (("one", first), ("other", second)):
        place = folder / side / name
        place.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return compare_outputs({"model": folder / "one"}, {"model": folder / "other"})


TIMES, OTHER_TIMES = (
    {
        "loss": 0.5,
        "epoch_seconds": number,
        "teraflops_per_rank": number,
        "history": [{"memory_mb": number, "accuracy": 1}],
        "created": f"2026-01-0{number}",
    }
    for number in (1, 2)
)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("card.json", TIMES, OTHER_TIMES),
        ("metrics.json", {"loss": 0.5}, {"loss": 0.5, "failed_saves": 2, "last_saved_step": 96}),
        ("MLmodel", "utc_time_created: '2026-11-24 12:36:11'\na: 1", "utc_time_created: 'x'\na: 1"),
    ],
)
def test_times_speeds_and_failed_saves_are_no_difference_and_are_named(
    tmp_path: Path, name: str, one: object, other: object
) -> None:
    found = compared(tmp_path, name, one, other)
    assert (found.is_equal, found.equal_but_for_times) == (True, [f"model/{name}"])


@pytest.mark.parametrize(
    ("name", "one", "other", "said"),
    [
        ("card.json", {"loss": 0.5}, {"loss": 0.25}, 'has "loss": 0.25 instead of "loss": 0.5'),
        ("card.json", {"a": [{"timeout": 1}]}, {"a": [{"timeout": 2}]}, 'has "timeout": 2 instead of "timeout": 1'),
        ("card.json", {"a": 1}, {"a": 1, "b": 1}, 'has "b": 1 instead of }'),
        ("card.json", {"a": "x"}, {"a": "y"}, 'has "a": "y" instead of "a": "x"'),
        ("MLmodel", "a: 1\nb: 1", "a: 1\nb: 2", "has b: 2 instead of b: 1"),
        ("a.bin", b"\xff\x00", b"\xff\x01", "other bytes"),
    ],
)
def test_another_value_is_a_difference_that_is_named(
    tmp_path: Path, name: str, one: object, other: object, said: str
) -> None:
    found = compared(tmp_path, name, one, other)
    assert (found.is_equal, found.differences) == (False, {f"model/{name}": said})


@pytest.mark.parametrize("name", ["5fb593f7x2", "20082061x9", "deadbeefx1"])
def test_names_made_for_one_run_are_one_name(name: str, tmp_path: Path) -> None:
    for side, attempt in (("one", name), ("other", "a0b1c2d3x14")):
        place = tmp_path / side / "step-00000038" / f"rank-00000-{attempt}.bin"
        place.parent.mkdir(parents=True)
        place.write_bytes(b"\x00\xff")
    assert compare_outputs({"c": tmp_path / "one"}, {"c": tmp_path / "other"}).files_equal == 1


def test_a_file_that_only_one_has_is_a_difference(tmp_path: Path) -> None:
    compared(tmp_path, "a.bin", b"\xff", b"\xff")
    (tmp_path / "other" / "b.bin").write_bytes(b"\xff")
    found = compare_outputs({"m": tmp_path / "one"}, {"m": tmp_path / "other"})
    assert found.differences == {"m/b.bin": "is there besides"}


def test_logs_are_named_as_not_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, "metrics.jsonl", "1", "2")
    assert found.not_compared == ["model/metrics.jsonl"]
    assert not found.is_equal  # nothing was compared


def test_archives_differ_by_the_content_of_their_members_alone(tmp_path: Path) -> None:
    for side, year, content in (("one", 2020, "a"), ("other", 2021, "a"), ("third", 2020, "b")):
        (tmp_path / side).mkdir()
        with zipfile.ZipFile(tmp_path / side / "model.keras", "w") as archive:
            archive.writestr(zipfile.ZipInfo("weights.h5", (year, 1, 1, 0, 0, 0)), f"\xff{content}")
            archive.writestr("b", "")
    one = {"m": tmp_path / "one"}
    assert compare_outputs(one, {"m": tmp_path / "other"}).equal_but_for_times == ["m/model.keras"]
    assert compare_outputs(one, {"m": tmp_path / "third"}).differences == {"m/model.keras": "other members: weights.h5"}


def test_other_bytes_are_a_difference(tmp_path: Path) -> None:
    assert compared(tmp_path, "a.bin", b"\xff\x00", b"\xff\x01").differences == {"model/a.bin": "other bytes"}

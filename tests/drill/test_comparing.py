"""Two executions' outputs: equal to the bit, equal but for times, or different, and by how much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from allranks.drill.comparing import OutputComparison, compare_outputs
from allranks.drill.tensor_files import largest_difference


def compared(folder: Path, name: str, first: object, second: object) -> OutputComparison:
    """What is found of one file that two executions have written so."""
    for side, content in (("one", first), ("other", second)):
        place = folder / side / name
        place.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return compare_outputs({"model": folder / "one"}, {"model": folder / "other"})


def test_times_and_speeds_are_no_difference_and_are_named(tmp_path: Path) -> None:
    one = {
        "loss": 0.5,
        "epoch_seconds": 1.2,
        "teraflops_per_rank": 1.5,
        "history": [{"memory_mb": 3, "accuracy": 1}],
        "created": "2026-01-01",
    }
    other = {
        "loss": 0.5,
        "epoch_seconds": 1.3,
        "teraflops_per_rank": 1.1,
        "history": [{"memory_mb": 4, "accuracy": 1}],
        "created": "2026-01-02",
    }
    found = compared(tmp_path, "card.json", one, other)
    assert found.is_equal
    assert found.but_for_times == ["model/card.json"]


def test_a_save_that_failed_on_the_way_is_no_difference_of_the_result(tmp_path: Path) -> None:
    found = compared(tmp_path, "metrics.json", {"loss": 0.5}, {"loss": 0.5, "failed_saves": 2, "last_saved_step": 96})
    assert found.is_equal
    assert found.but_for_times == ["model/metrics.json"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"loss": 0.5}, {"loss": 0.25}, "loss is 0.25, was 0.5"),
        ({"a": [{"timeout": 1}]}, {"a": [{"timeout": 2}]}, "a.0.timeout is 2, was 1"),
        ({"a": 1}, {"b": 1}, "a is not there"),
        ({"a": 1}, {"a": 1, "b": 1}, "b is there besides"),
        ({"a": [1, 2]}, {"a": [1]}, "a differs"),
        ({"a": "x"}, {"a": "y"}, "a is 'y', was 'x'"),
    ],
)
def test_another_value_is_a_difference_that_is_named(tmp_path: Path, one: object, other: object, said: str) -> None:
    found = compared(tmp_path, "card.json", one, other)
    assert found.differences == {"model/card.json": said}
    assert not found.is_equal


def test_text_differs_in_more_than_its_moments(tmp_path: Path) -> None:
    same = compared(tmp_path, "MLmodel", "utc_time_created: '2026-11-24 12:36:11'\na: 1", "utc_time_created: 'x'\na: 1")
    assert same.is_equal
    assert compared(tmp_path, "MLmodel", "a: 1\nb: 1", "a: 1\nb: 2").differences == {
        "model/MLmodel": "other text from line 2 on"
    }


@pytest.mark.parametrize("name", ["5fb593f7x2", "20082061x9", "deadbeefx1"])
def test_names_made_for_one_run_are_one_name(name: str, tmp_path: Path) -> None:
    for side, attempt in (("one", name), ("other", "a0b1c2d3x14")):
        place = tmp_path / side / "step-00000038" / f"rank-00000-{attempt}.bin"
        place.parent.mkdir(parents=True)
        place.write_bytes(b"\x00\xff")
    assert compare_outputs({"c": tmp_path / "one"}, {"c": tmp_path / "other"}).files == 1


def test_a_file_that_only_one_has_is_a_difference(tmp_path: Path) -> None:
    compared(tmp_path, "a.bin", b"\xff", b"\xff")
    (tmp_path / "other" / "b.bin").write_bytes(b"\xff")
    found = compare_outputs({"m": tmp_path / "one"}, {"m": tmp_path / "other"})
    assert found.differences == {"m/b.bin": "is there besides"}


def test_logs_are_named_as_not_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, "metrics.jsonl", "1", "2")
    assert found.not_compared == ["model/metrics.jsonl"]
    assert not found.is_equal  # nothing was compared


def test_numbers_that_differ_are_measured(tmp_path: Path) -> None:
    base = {"bias": np.zeros(3, np.float32), "weight": np.ones((4, 4), np.float32)}
    save_file(base, tmp_path / "a.safetensors")
    save_file({**base, "weight": base["weight"] + np.float32(0.25)}, tmp_path / "b.safetensors")
    save_file({"weight": base["weight"]}, tmp_path / "c.safetensors")
    assert largest_difference(tmp_path / "a.safetensors", tmp_path / "b.safetensors") == "at most 0.25, in weight"
    assert "other names" in largest_difference(tmp_path / "a.safetensors", tmp_path / "c.safetensors")
    np.save(tmp_path / "a.npy", np.arange(5.0))
    np.save(tmp_path / "b.npy", np.arange(5.0) * 2)
    assert largest_difference(tmp_path / "a.npy", tmp_path / "b.npy") == "at most 4"


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\xff\xff{", b"\xff" * 8, b"\x02" + bytes(7) + b"[]"])
def test_a_file_that_is_not_what_its_name_says_is_no_traceback(tmp_path: Path, suffix: str, content: bytes) -> None:
    one, other = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    one.write_bytes(content)
    other.write_bytes(content + b"x")
    assert largest_difference(one, other) == "not readable as what its name says"

"""The limits of what is read of other people's files: each is met, says how it is raised, and can be raised."""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from shared.data import Dataset
from shared.data.formats.file_format import ReadBudget, WrongFileError, open_bytes, read_budget
from shared.data.sources import SOURCES, SourceRequest
from shared.data.text.files import read_text
from shared.distributed import Refusal
from shared.storage import read_bytes
from tests.components.training import write_digits

LARGE = 2**36
"""Bytes of a file that has no content: more than a machine has memory."""
TABLE = "a,target\n" + "".join(f"{row},{row % 3}\n" for row in range(30))


def read_source(dataset: str, folder: Path, **more: object) -> object:
    return SOURCES[dataset](SourceRequest(dataset, folder, **more))  # type: ignore[arg-type]


def write_table(folder: Path) -> Path:
    (folder / "t.csv.gz").write_bytes(gzip.compress(TABLE.encode()))
    return folder


def write_parquet(folder: Path) -> Path:
    parquet.write_table(pa.table({"a": [1.0, 2.0], "target": ["x", "y"]}), folder / "t.parquet")
    return folder


@pytest.mark.parametrize(
    ("dataset", "write", "limit"),
    [
        ("csv", write_table, "unpacked_bytes=20"),
        ("csv", write_table, "columns=1"),
        ("csv", write_table, "classes=2"),
        ("parquet", write_parquet, "columns=1"),
    ],
)
def test_a_limit_that_is_met_says_how_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str, write: object, limit: str
) -> None:
    folder = write(tmp_path)  # type: ignore[operator]
    read_source(dataset, folder)
    monkeypatch.setenv("ALLRANKS_DATA_BUDGET", limit)
    with pytest.raises(Refusal, match=f"ALLRANKS_DATA_BUDGET={limit.partition('=')[0]}=N, N up to "):
        read_source(dataset, folder)


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zeros.gz").write_bytes(gzip.compress(bytes(10**6)))
    assert len(open_bytes(tmp_path / "zeros.gz").read()) == 10**6
    monkeypatch.setenv("ALLRANKS_DATA_BUDGET", "unpacked_bytes=999999")
    with open_bytes(tmp_path / "zeros.gz") as file, pytest.raises(OSError, match="unpacks to more than 999,999 bytes"):
        file.read()


def test_an_index_and_a_text_that_are_too_large_are_refused_before_they_are_read(tmp_path: Path) -> None:
    write_digits(tmp_path, rows=20)
    os.truncate(tmp_path / "index.json", LARGE)
    with pytest.raises(Refusal, match=r"index\.json cannot be read: it has 68,719,476,736 bytes, more than 16,777,216"):
        Dataset.open(tmp_path)
    (tmp_path / "book.txt").write_text("once")
    os.truncate(tmp_path / "book.txt", LARGE)
    with pytest.raises(WrongFileError, match="has 68,719,476,736 bytes; max_megabytes 16 allows 16,777,216"):
        read_text(tmp_path / "book.txt", 2**24)


@pytest.mark.parametrize("value", ["columns", "columns=0", "columns=1e3", "column=3", "columns=" + "9" * 5_000])
def test_a_wrong_budget_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ALLRANKS_DATA_BUDGET", value)
    with pytest.raises(Refusal, match="ALLRANKS_DATA_BUDGET: ") as caught:
        read_budget()
    assert len(str(caught.value)) < 300


def test_every_limit_can_be_raised_as_far_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in dataclasses.fields(ReadBudget):
        monkeypatch.setenv("ALLRANKS_DATA_BUDGET", f"{one.name}={one.metadata['most']}")
        assert getattr(read_budget(), one.name) == one.metadata["most"] > one.default


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A checkpoint's file that was a pipe was waited for. Found by ``make fuzz``."""
    make(tmp_path / "x")
    with pytest.raises(OSError, match="it is not a file"):
        read_bytes(tmp_path / "x")


def test_a_dataset_with_what_is_no_file_is_refused(tmp_path: Path) -> None:
    write_digits(tmp_path / "d", rows=20)
    file = next((tmp_path / "d" / "train").glob("x*.npy"))
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(Refusal, match="cannot be read: it is not a file"):
        Dataset.open(tmp_path / "d").verify()
    with pytest.raises(Refusal, match="cannot be read: it is not a file"):
        Dataset.open(tmp_path / "d").split("train").take(np.arange(2))
    text = (tmp_path / "d" / "index.json").read_text()
    (tmp_path / "d" / "index.json").write_text(text.replace('"shape": [', '"shape": [1e999, ', 1))
    with pytest.raises(Refusal, match="is damaged: cannot convert float infinity"):
        Dataset.open(tmp_path / "d")

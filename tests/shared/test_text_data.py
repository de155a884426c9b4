"""Prepared text: packed blocks, ragged passages, and what the index says about both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.data import Array, Dataset, Index, Ragged, TextEncoding
from shared.data.write import write_index, write_ragged_shard
from shared.distributed import Refusal
from tests.shared.samples import write_text_classification_dataset

ARRAYS = {"x": Array((), "int32", ragged=True), "y": Array((), "int64")}
ROWS = [list(range(length)) for length in (3, 0, 5, 1, 4, 2, 2)]
SIZES = (2, 4, 1)


@pytest.fixture(scope="module")
def passages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven rows in three shards; row i has a label of i."""
    folder = tmp_path_factory.mktemp("passages")
    shards, start = [], 0
    for number, size in enumerate(SIZES):
        x = Ragged.of([np.array(row) for row in ROWS[start : start + size]], "int32")
        y = np.arange(start, start + size)
        shards.append(write_ragged_shard(folder, "train", number, x=x, y=y, arrays=ARRAYS))
        start += size
    text = TextEncoding("tokenizer", 70_000, 5, 9, 8, {"train": 10}, {}, {"train": 17}, "ab" * 32)
    splits = {"train": tuple(shards), "validation": (), "test": ()}
    write_index(folder, Index("text_classification", ARRAYS, ("a", "b"), None, splits, text=text))
    return folder


@given(wanted=st.lists(st.integers(0, len(ROWS) - 1), max_size=12))
@settings(max_examples=60, deadline=None)
def test_ragged_rows_come_padded_in_the_order_asked(wanted: list[int], passages: Path) -> None:
    taken = Dataset.open(passages).split("train").take(np.array(wanted, np.int64))
    expected = [ROWS[row] for row in wanted]
    width = max(map(len, expected), default=0)
    assert taken["x"].shape == (len(wanted), width)
    assert (taken["x"].dtype, taken["lengths"].dtype) == (np.int32, np.int64)
    assert taken["x"].tolist() == [row + [9] * (width - len(row)) for row in expected]
    assert taken["lengths"].tolist() == [len(row) for row in expected]
    assert taken["y"].tolist() == wanted


def test_the_index_of_a_text_survives_a_round_trip(passages: Path) -> None:
    index = Dataset.open(passages).index
    assert index.to_json() == (passages / "index.json").read_text(encoding="utf-8")
    assert index.statistics is None
    assert index.outputs == 2
    assert index.text.fingerprint == "ab" * 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.pop("text"), "with no target and no text"),
        (lambda index: index.update(task="classification"), "with no target and a text"),
        (lambda index: index["text"].update(tokenizer="../theirs"), "leaves the dataset's folder"),
        (lambda index: index["text"].pop("padding"), "lacks 'padding'"),
        (lambda index: index["splits"]["train"]["shards"][0]["files"].pop("x_offsets"), "not for the arrays"),
    ],
)
def test_a_damaged_index_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    folder = write_text_classification_dataset(tmp_path)
    document = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    change(document)
    (folder / "index.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(Refusal, match=message):
        Dataset.open(folder)


def test_offsets_that_lead_astray_are_refused(tmp_path: Path) -> None:
    path = write_text_classification_dataset(tmp_path) / "train" / "x_offsets-00000.npy"
    offsets = np.load(path)
    np.save(path, np.r_[offsets[0], offsets[2], offsets[1], offsets[3:]])
    with pytest.raises(Refusal, match=r"x_offsets-00000.npy is damaged: its offsets do not lead"):
        Dataset.open(tmp_path).split("train").take(np.array([0]))

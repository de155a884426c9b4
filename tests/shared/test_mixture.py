"""Several datasets in the proportion of weights: the same on any ranks, continued anywhere, nothing twice too early."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.data import Dataset
from shared.data.dataset import reader
from shared.data.dataset.mixture import BLOCK_ROWS, MixedDataset, read_weights, share_out
from shared.distributed import Refusal
from shared.training.core.batch_plan import BatchPlan
from tests.components.training import write_digits
from tests.shared.samples import write_language_dataset, write_text_classification_dataset
from tests.shared.streams import feed_of, rows_of, streamed, write_numbered

ROWS = (300, 40, 77)
ENDS = np.cumsum(ROWS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three datasets, whose rows say which of all rows they are."""
    first = 0
    found = []
    for rows in ROWS:
        shards = [rows // 3, rows // 3, rows - rows // 3 * 2]
        found.append(write_numbered(tmp_path_factory.mktemp("one"), shards, first=first))
        first += rows
    return found


def mixed(folders: list[Path], weights: list[float] | None, *, streaming: bool) -> MixedDataset:
    datasets = [streamed(one, buffer_bytes=1000) if streaming else Dataset.open(one) for one in folders]
    return MixedDataset.of(datasets, weights)


@pytest.mark.parametrize("streaming", [False, True])
def test_ranks_together_see_the_same_batches_from_any_place(streaming: bool, folders: list[Path]) -> None:
    data = mixed(folders, [0.6, 0.3, 0.1], streaming=streaming)
    alone = [rows_of(feed_of(data, BatchPlan(12, 1, 1)).epoch(epoch)) for epoch in range(4)]
    assert [len(batches) for batches in alone] == [sum(ROWS) // 12] * 4
    for ranks, epoch, start in ((2, 0, 0), (4, 1, 20), (2, 3, 33)):
        parts = [rows_of(feed_of(data, BatchPlan(12, ranks, 1), rank).epoch(epoch, start)) for rank in range(ranks)]
        together = [[row for part in batch for row in part] for batch in zip(*parts, strict=True)]
        assert together == alone[epoch][start:]


@pytest.mark.parametrize("streaming", [False, True])
def test_weights_hold_and_each_row_comes_once_before_any_comes_twice(streaming: bool, folders: list[Path]) -> None:
    feed = feed_of(mixed(folders, [0.5, 0.25, 0.25], streaming=streaming), BatchPlan(12, 1, 1))
    stream = [row for epoch in range(5) for batch in rows_of(feed.epoch(epoch)) for row in batch]
    of = np.searchsorted(ENDS, stream, side="right")
    np.testing.assert_array_equal(np.bincount(of[:BLOCK_ROWS]), [500, 250, 250])
    for place in range(50, len(stream), 50):
        np.testing.assert_allclose(np.bincount(of[:place]) / place, [0.5, 0.25, 0.25], atol=1.2 / place**0.5)
        for number, rows in enumerate(ROWS):
            counts = Counter(row for row, one in zip(stream[:place], of[:place], strict=True) if one == number)
            assert max(counts.values()) - (min(counts.values()) if len(counts) == rows else 0) <= 1


@pytest.mark.parametrize("few", [True, False])
def test_memory_holds_few_rows_of_all_where_nobody_has_said_how_they_are_read(
    few: bool, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "HELD_ARRAY_BYTES", 0)
    split = mixed(folders, [0.6, 0.3, 0.1], streaming=False).split("train")
    row_bytes = sum(np.prod(array.shape) * np.dtype(array.dtype).itemsize for array in split.arrays.values())
    monkeypatch.setattr(reader, "HELD_SPLIT_BYTES", int(split.rows * row_bytes) - (not few))
    chosen, rows = split.for_training(), np.arange(split.rows)
    assert (split.held, chosen.held) == (False, few)
    assert all(np.array_equal(chosen.take(rows)[name], found) for name, found in split.take(rows).items())
    asked_otherwise = Dataset(folders[0], Dataset.open(folders[0]).index, "random").split("train")
    assert asked_otherwise.for_training() is asked_otherwise
    streamed_rows = mixed(folders, None, streaming=True).split("train")
    assert streamed_rows.for_training() is streamed_rows


def test_without_weights_an_epoch_has_nearly_every_row(folders: list[Path]) -> None:
    feed = feed_of(mixed(folders, None, streaming=False), BatchPlan(1, 1, 1))
    seen = {row for batch in rows_of(feed.epoch(0)) for row in batch}
    assert len(seen) >= sum(ROWS) - 25


def test_text_of_different_lengths(tmp_path: Path) -> None:
    folders = [
        write_text_classification_dataset(tmp_path / "a"),
        write_text_classification_dataset(tmp_path / "b", seed=9),
    ]
    data = mixed(folders, [1, 1], streaming=True)
    one, other = (Dataset.open(folder).split("train") for folder in folders)
    taken = data.split("train").take(np.array([one.rows + 3, 5, 1]))
    for place, (split, row) in enumerate(((other, 3), (one, 5), (one, 1))):
        alone = split.take(np.array([row]))
        assert taken["lengths"][place] == alone["lengths"][0]
        np.testing.assert_array_equal(taken["x"][place][: alone["lengths"][0]], alone["x"][0])
        assert (taken["x"][place][alone["lengths"][0] :] == split.padding).all()
    assert sum(len(x) for x, _ in feed_of(data, BatchPlan(8, 1, 1)).epoch(0)) == (one.rows + other.rows) // 8 * 8


def test_what_cannot_be_mixed_is_refused(folders: list[Path], tmp_path: Path) -> None:
    digits, text = write_digits(tmp_path / "digits", rows=40), write_language_dataset(tmp_path / "text")
    with pytest.raises(Refusal, match=r"a row's shape and type of .*digits"):
        mixed([folders[0], digits], None, streaming=False)
    with pytest.raises(Refusal, match="the task of"):
        mixed([folders[0], text], None, streaming=False)
    for wrong in ("1", "1,2,3", "1,-1", "1,nan", "a,b", ""):
        with pytest.raises(Refusal, match="2 numbers above 0 are needed"):
            read_weights(wrong, 2)
    assert read_weights("0.7, 0.3", 2) == [0.7, 0.3]
    assert read_weights(None, 2) is None


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=4))
def test_shares_add_up(weights: list[float]) -> None:
    shares = share_out(weights, BLOCK_ROWS)
    assert shares.sum() == BLOCK_ROWS
    assert shares.min() >= 1
    exact = np.array(weights) / sum(weights) * BLOCK_ROWS
    assert np.abs(shares - exact).max() <= 4


def test_validation_is_that_of_the_first(folders: list[Path]) -> None:
    data = mixed(folders, None, streaming=False)
    assert data.split("validation").rows == 1
    assert data.split("validation").folder == folders[0]

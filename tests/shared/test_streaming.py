"""Reading shard by shard: the order is a function of seed and epoch, continued anywhere, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.data import Dataset
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.shard_order import ShardOrder
from shared.training.core.batch_plan import BatchPlan
from tests.helpers import run_ranks
from tests.shared.samples import write_language_dataset, write_text_classification_dataset
from tests.shared.streams import feed_of, rows_of, streamed, write_numbered

SHARDS = (7, 30, 1, 22, 13, 30, 30, 9, 30, 28)

shards_and_more = {
    "shard_rows": st.lists(st.integers(1, 9), min_size=1, max_size=12).map(np.array),
    "group_rows": st.integers(1, 40),
    "seed": st.integers(0, 3),
    "epoch": st.integers(0, 3),
}


@settings(max_examples=150, deadline=None)
@given(**shards_and_more, batch=st.integers(1, 30), data=st.data())
def test_an_epoch_has_each_row_once_and_goes_on_anywhere(
    shard_rows: RowNumbers, group_rows: int, seed: int, epoch: int, batch: int, data: st.DataObject
) -> None:
    rows = int(shard_rows.sum())
    whole = ShardOrder(shard_rows, group_rows, seed, epoch).rows_between(0, rows)
    assert sorted(whole.tolist()) == list(range(rows))
    start = data.draw(st.integers(0, rows - 1))
    later = ShardOrder(shard_rows, group_rows, seed, epoch)  # as after a kill: it has seen nothing of what was before
    places = [(first, min(rows, first + batch)) for first in range(start, rows, batch)]
    found = [later.rows_between(first, last) for first, last in places]
    np.testing.assert_array_equal(np.concatenate(found), whole[start:])
    for (first, last), numbers in zip(places, found, strict=True):
        shards = np.searchsorted(np.cumsum(shard_rows), numbers, side="right")
        assert set(shards.tolist()) <= set(later.shards_of(later.phases_between(first, last)))


@settings(max_examples=100, deadline=None)
@given(**shards_and_more)
def test_a_phase_needs_two_groups_of_which_none_is_more_than_a_shard_too_large(
    shard_rows: RowNumbers, group_rows: int, seed: int, epoch: int
) -> None:
    order = ShardOrder(shard_rows, group_rows, seed, epoch)
    for place in range(int(shard_rows.sum())):
        phases = order.phases_between(place, place + 1)
        assert len(phases) == 1
        assert shard_rows[order.shards_of(phases)].sum() <= 2 * (group_rows - 1 + shard_rows.max())


def test_a_buffer_for_everything_shuffles_everything_and_a_smaller_one_mixes_neighbours() -> None:
    shards = np.full(100, 50)
    full = ShardOrder(shards, 5000, 0, 0).rows_between(0, 5000)
    assert len({int(row) // 50 for row in full[:200]}) > 75, "rows of nearly all shards come at once"
    some = ShardOrder(shards, 500, 0, 0)
    found = some.rows_between(0, 5000) // 50
    spread = [len(set(found[start : start + 100].tolist())) for start in range(500, 4500, 100)]
    assert min(spread) >= 15, "a batch has rows of most of the 20 shards that are there at a time"
    assert not np.array_equal(found, ShardOrder(shards, 500, 0, 1).rows_between(0, 5000) // 50)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_ranks_together_see_the_same_batches_from_any_start(workers: int, tmp_path: Path) -> None:
    data = streamed(write_numbered(tmp_path, SHARDS), buffer_bytes=40 * 24)
    alone = rows_of(feed_of(data, BatchPlan(12, 1, 1), workers=workers).epoch(3))
    assert len(alone) == sum(SHARDS) // 12
    assert len({row for batch in alone for row in batch}) == len(alone) * 12
    one_by_one = data.split("train").batches(batch_size=12, seed=3, epoch=3)
    assert alone == [batch.tolist() for batch in one_by_one], "however many are read at once"
    for ranks, start in ((2, 0), (4, 0), (2, 5), (4, 11), (1, 15)):
        parts = [
            rows_of(feed_of(data, BatchPlan(12, ranks, 1), r, workers=workers).epoch(3, start)) for r in range(ranks)
        ]
        together = [[row for part in batch for row in part] for batch in zip(*parts, strict=True)]
        assert together == alone[start:]


def test_two_epochs_of_one_feed_and_rows_out_of_order(tmp_path: Path) -> None:
    data = streamed(write_numbered(tmp_path, SHARDS), buffer_bytes=40 * 24, threads=2)
    feed = feed_of(data, BatchPlan(10, 1, 1))
    first, second = rows_of(feed.epoch(0)), rows_of(feed.epoch(1))
    assert first != second
    assert {row for batch in first for row in batch} == {row for batch in second for row in batch} == set(range(200))
    np.testing.assert_array_equal(data.split("train").take(np.array([199, 0, 37]))["y"], [199, 0, 37])


@pytest.mark.parametrize("write", [write_language_dataset, write_text_classification_dataset])
def test_text_comes_whole_too(write: object, tmp_path: Path) -> None:
    folder = write(tmp_path)  # type: ignore[operator]
    data = streamed(folder, buffer_bytes=2000)
    split = data.split("train")
    wanted = np.arange(split.rows)[::-1]
    for name, array in Dataset.open(folder).split("train").take(wanted).items():
        np.testing.assert_array_equal(split.take(wanted)[name], array)
    assert sum(len(x) for x, _ in feed_of(data, BatchPlan(8, 1, 1)).epoch(0)) == split.rows // 8 * 8


def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    """160 MB through a buffer of 8 MB: its groups, and four parts of 8 MB that are read at once."""
    code = """
        import torch
        from pathlib import Path
        from shared.training.core.batch_plan import BatchPlan
        from tests.shared.streams import feed_of, streamed

        def resident():
            return int(next(l for l in open("/proc/self/status") if l.startswith("RssAnon")).split()[1]) / 1000

        before = resident()
        feed = feed_of(streamed(Path.cwd(), buffer_bytes=8_000_000), BatchPlan(500, 1, 1))
        print(max(resident() for batch in feed.epoch(0)) - before)
    """
    write_numbered(tmp_path, [1000] * 40, width=1000)
    (done,) = run_ranks(code, processes=1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100, "MB; what was kept of all files would be 160 more"

"""Streaming from a mount as awkward as a blob store: the same rows, with a cache and without, and faults that have a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.data import Dataset
from shared.data.dataset.shard_cache import ShardCache
from shared.data.dataset.streamed import ShardStreaming, StreamedDataset
from shared.distributed import Refusal
from shared.training.core.batch_plan import BatchPlan
from tests.blob_mount import WORST, blob_mount, can_mount
from tests.shared.streams import feed_of, rows_of, streamed, write_numbered

pytestmark = pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")

PLAN = BatchPlan(20, 1, 1)
BUFFER = 240_000
"""Bytes: of 5 shards of 600 rows of 80 bytes."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A mount on which every tenth operation fails, with a dataset."""
    with blob_mount(tmp_path / "blob", replace(WORST, errors=0.1)) as place:
        write_numbered(tmp_path / "blob" / "behind" / "data", [600] * 12, width=18)
        yield place


def from_mount(mount: Path, cache: ShardCache | None) -> Dataset:
    index = Dataset.open(mount / "data").index
    return StreamedDataset(mount / "data", index, streaming=ShardStreaming(BUFFER, 1, cache, in_place=False))


def test_the_rows_are_those_of_a_disk_with_a_cache_and_without(mount: Path, tmp_path: Path) -> None:
    data = streamed(tmp_path / "blob" / "behind" / "data", buffer_bytes=BUFFER)
    expected = rows_of(feed_of(data, PLAN).epoch(1))
    (tmp_path / "cache").mkdir()
    assert rows_of(feed_of(from_mount(mount, None), PLAN).epoch(1)) == expected
    for capacity in (200_000, 10**7, 10**7):  # too small, fetched, and there
        cache = ShardCache(tmp_path / "cache", capacity)
        assert rows_of(feed_of(from_mount(mount, cache), PLAN).epoch(1)) == expected
        assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.npy")) <= capacity


@pytest.mark.parametrize("cached", [True, False])
def test_a_shard_that_stays_broken_is_named(cached: bool, mount: Path, tmp_path: Path) -> None:
    broken = tmp_path / "blob" / "behind" / "data" / "train" / "x-00003.npy"
    broken.write_bytes(broken.read_bytes()[:-1])
    (tmp_path / "cache").mkdir()
    data = from_mount(mount, ShardCache(tmp_path / "cache", 10**7) if cached else None)
    with pytest.raises(Refusal, match=r"mount/data/train/x-00003\.npy") as refused:
        rows_of(feed_of(data, PLAN).epoch(0))
    assert "repare the data again" in str(refused.value)
    assert not list((tmp_path / "cache").glob("*.part"))

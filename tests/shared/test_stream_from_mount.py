"""Streaming from a mount as awkward as a blob store: the same rows, and faults that have a name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shared.data import Dataset
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


def from_mount(mount: Path) -> Dataset:
    index = Dataset.open(mount / "data").index
    return StreamedDataset(mount / "data", index, streaming=ShardStreaming(BUFFER, 1, in_place=False))


def test_the_rows_are_those_of_a_disk(mount: Path, tmp_path: Path) -> None:
    data = streamed(tmp_path / "blob" / "behind" / "data", buffer_bytes=BUFFER)
    expected = rows_of(feed_of(data, PLAN).epoch(1))
    assert rows_of(feed_of(from_mount(mount), PLAN).epoch(1)) == expected


def test_a_shard_that_stays_broken_is_named(mount: Path, tmp_path: Path) -> None:
    broken = tmp_path / "blob" / "behind" / "data" / "train" / "x-00003.npy"
    broken.write_bytes(broken.read_bytes()[:-1])
    data = from_mount(mount)
    with pytest.raises(Refusal, match=r"mount/data/train/x-00003\.npy") as refused:
        rows_of(feed_of(data, PLAN).epoch(0))
    assert "repare the data again" in str(refused.value)

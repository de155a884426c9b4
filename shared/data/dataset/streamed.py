"""Reading a dataset shard by shard: what the next steps need is fetched by a thread, and what is done with is given up.

Memory holds the shards of at most two phases that overlap, three groups, whatever the dataset's size: mapped where they
lie on the node's disk, so that its ranks share them.
"""

from __future__ import annotations

import mmap
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.encodings import TextEncoding
from shared.data.dataset.index import Index
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.ragged import Ragged
from shared.data.dataset.reader import Dataset, RowsBetween, Split
from shared.data.dataset.shard_cache import ShardCache, is_local, open_cache
from shared.data.dataset.shard_order import ShardOrder

_UNORDERED_SHARDS = 4
"""Open at a time beside those of the order: rows of validation come shard by shard."""


@dataclass(frozen=True)
class ShardStreaming:
    """How shards are read in order.

    Attributes:
        buffer_bytes: of the shards whose rows are mixed at a time.
        threads: that fetch shards ahead of their use; 1 or more.
        cache: where copies are kept on this node; None: nowhere.
        in_place: whether the shards lie on a disk of this node, so that they can be mapped where they are.
    """

    buffer_bytes: int
    threads: int = 1
    cache: ShardCache | None = None
    in_place: bool = True

    @classmethod
    def of_folder(
        cls, data: Path, buffer_mb: float, threads: int, cache_gb: float, named: str | None
    ) -> ShardStreaming:
        """Stream the dataset in a folder; see `open_cache` for the last two."""
        cache = open_cache(data, cache_gb, named)
        return cls(int(buffer_mb * 10**6), max(1, threads), cache, is_local(data))


@dataclass(frozen=True)
class StreamedDataset(Dataset):
    """A prepared dataset whose splits are read shard by shard."""

    access: str = "streaming"
    streaming: ShardStreaming = field(default_factory=lambda: ShardStreaming(512 * 10**6))

    def _opened(self, name: str, padding: int) -> Split:
        """Make a split that has rows."""
        mean_bytes = _row_bytes(self.index, self.index.text, name)
        group_rows = max(1, int(self.streaming.buffer_bytes / 2 / mean_bytes))
        index, how = self.index, self.streaming
        return StreamedSplit(
            name,
            self.folder,
            index.arrays,
            index.splits[name],
            padding,
            self.access,
            streaming=how,
            group_rows=group_rows,
        )


def _row_bytes(index: Index, text: TextEncoding | None, split: str) -> float:
    """Bytes of a row on average, by the index alone: the order of rows must not depend on anything else."""
    total = 0.0
    for array in index.arrays.values():
        values = text.tokens[split] / index.rows(split) if array.ragged and text else float(np.prod(array.shape))
        total += values * np.dtype(array.dtype).itemsize + (8 if array.ragged else 0)
    return total


@dataclass
class StreamedSplit(Split):
    """Rows of one split, of which `take` finds those of the last batches' phases in memory.

    Rows out of order can be taken as well; their shards are fetched when they are asked for.
    """

    streaming: ShardStreaming = field(kw_only=True)
    group_rows: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._shards_open: dict[int, Future[dict[str, npt.NDArray[Any] | Ragged]]] = {}
        self._most = _UNORDERED_SHARDS
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.streaming.threads, thread_name_prefix="shards")

    @property
    def order_name(self) -> int | str:
        """Rows, and how they are ordered."""
        return f"{self.rows}, read shard by shard, mixed in groups of {self.group_rows}"

    def epoch_places(self, seed: int, epoch: int) -> RowsBetween:
        """Give what says which rows come when; as it is asked for one place after the other, shards come and go."""
        order = ShardOrder(np.array([shard.rows for shard in self.shards]), self.group_rows, seed, epoch)
        margin, phases = self.group_rows // 4, range(0)  # batches are read later than their numbers are given

        def rows_between(first: int, last: int) -> RowNumbers:
            nonlocal phases
            needed = order.phases_between(first - margin, last + margin)
            if needed != phases:
                phases = needed
                self._keep(order.shards_of(phases))
            return order.rows_between(first, last)

        return rows_between

    def _keep(self, shards: list[int]) -> None:
        """Give up all other shards, and begin to fetch those of these that are not here."""
        with self._lock:
            self._most = len(shards) + _UNORDERED_SHARDS
            held = self._shards_open
            self._shards_open = {number: held.get(number) or self._begin(number) for number in shards}

    def _begin(self, number: int) -> Future[dict[str, npt.NDArray[Any] | Ragged]]:
        return self._pool.submit(self._read_shard, number)

    def _files(self, number: int) -> dict[str, npt.NDArray[Any] | Ragged]:
        """The arrays of a shard; it is fetched if it was not to be expected that it is needed."""
        with self._lock:
            future = self._shards_open.get(number)
            if future is None:
                future = self._shards_open[number] = self._begin(number)
                while len(self._shards_open) > self._most:
                    self._shards_open.pop(next(iter(self._shards_open)))
        return future.result()

    def _read_shard(self, number: int) -> dict[str, npt.NDArray[Any] | Ragged]:
        return {
            name: self._open_ragged(name, number) if array.ragged else self._map(name, number)
            for name, array in self.arrays.items()
        }

    def _shard(self, name: str, number: int) -> npt.NDArray[Any]:
        found = self._files(number)[name]
        assert not isinstance(found, Ragged)  # noqa: S101  # it is asked for rows of one length
        return found

    def _ragged_shard(self, name: str, number: int) -> Ragged:
        found = self._files(number)[name]
        assert isinstance(found, Ragged)  # noqa: S101  # it is asked for rows of many lengths
        return found

    def _is_held(self, name: str) -> bool:
        del name
        return False

    def _read_file(self, path: Path, sha256: str) -> npt.NDArray[Any]:
        """Read a file front to back: a copy on this node's disk is mapped, what lies elsewhere goes into memory."""
        how = self.streaming
        local = how.cache.fetch(path, sha256) if how.cache else None
        if local is None and not how.in_place:
            whole: npt.NDArray[Any] = np.load(path, allow_pickle=False)
            return whole
        return _map_read(local or path)


def _map_read(path: Path) -> npt.NDArray[Any]:
    """Map a file that is in the system's memory by then, so that no batch waits for the disk."""
    mapped: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    # One byte of each page: NumPy lets others compute while the disk answers, which mmap's own advice does not.
    mapped.reshape(-1).view(np.uint8)[:: mmap.PAGESIZE].max(initial=0)
    return mapped

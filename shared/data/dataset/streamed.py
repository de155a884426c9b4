"""Reading a dataset shard by shard: what the next steps need is fetched by a thread, and what is done with is given up.

Memory holds the shards of at most two phases that overlap, three groups, whatever the dataset's size: mapped where they
lie on the node's disk, so that its ranks share them.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Index, array_files
from shared.data.dataset.npy_files import is_local, map_npy, read_npy
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.ragged import Ragged
from shared.data.dataset.reader import Dataset, JointRows, RowsBetween, Split
from shared.data.dataset.shard_order import ShardOrder

_UNORDERED_SHARDS = 4
"""Open at a time beside those of the order: rows of validation come shard by shard."""


@dataclass(frozen=True)
class ShardStreaming:
    """How shards are read in order.

    Attributes:
        buffer_bytes: of the shards whose rows are mixed at a time.
        threads: that fetch shards ahead of their use; 1 or more.
        in_place: whether the shards lie on a disk of this node, so that they can be mapped where they are.
    """

    buffer_bytes: int
    threads: int = 1
    in_place: bool = True

    @classmethod
    def of_folder(cls, data: Path, buffer_mb: float, threads: int) -> ShardStreaming:
        """Stream the dataset in a folder."""
        return cls(int(buffer_mb * 10**6), max(1, threads), is_local(data))


@dataclass(frozen=True)
class StreamedDataset(Dataset):
    """A prepared dataset whose splits are read shard by shard."""

    access: str = "streaming"
    streaming: ShardStreaming = field(default_factory=lambda: ShardStreaming(512 * 10**6))

    def _opened(self, name: str, padding: int) -> Split:
        """Make a split that has rows."""
        mean_bytes = mean_row_bytes(self.index, name)
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


def mean_row_bytes(index: Index, split: str) -> float:
    """Bytes of a row on average, by the index alone: the order of rows must not depend on anything else."""
    total, text = 0.0, index.text
    for array in index.arrays.values():
        values = float(np.prod(array.shape))
        if array.ragged and text:
            values = text.tokens[split] / index.rows(split)
        elif array.is_encoded:
            values = index.picture_bytes[split] / index.rows(split)
        total += values * np.dtype(array.dtype).itemsize + 8 * (len(array_files("x", array)) - 1)
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
        held, checked, step = range(0), 0, max(1, self.group_rows // 4)

        def rows_between(first: int, last: int) -> RowNumbers:
            nonlocal held, checked
            if last - first > step:  # of many ranks: what is held moves on as it does for small batches
                parts = [rows_between(begin, min(last, begin + step)) for begin in range(first, last, step)]
                return np.concatenate(parts)
            if last > checked:  # not at each batch: small ones are asked for faster than this is found out
                checked = last + self.group_rows // 16
                if (needed := self._phases_held(order, first, checked)) != held:
                    held = needed
                    self._keep(order.shards_of(held))
            return order.rows_between(first, last)

        return rows_between

    def _phases_held(self, order: ShardOrder, first: int, last: int) -> range:
        """Two phases, if a batch lies in no more: the one before while its batches may still be read, else the next."""
        before = order.phases_between(first - self.group_rows // 4, last)
        return before if len(before) > 1 else order.phases_between(first, last + self.group_rows)[:2]

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
            name: self._open_ragged(name, number) if array.ragged or array.is_encoded else self._map(name, number)
            for name, array in self.arrays.items()
        }

    def _shard(self, name: str, number: int) -> npt.NDArray[Any]:
        found = self._files(number)[name]
        assert not isinstance(found, Ragged)  # noqa: S101  # it is asked for rows of one length
        return found

    def _joint_rows(self, name: str, needed: set[int]) -> JointRows:
        """Join the shards that are needed with those that are here; what was given up meanwhile is let go."""
        joint = self._joint.get(name)
        kept = needed.union(self._shards_open)
        if joint is None or not needed <= joint.arrays.keys() <= kept:
            before = joint.arrays if joint else {}
            here = {n for n, future in list(self._shards_open.items()) if future.done() and not future.exception()}
            arrays = {n: before[n] if n in before else self._shard(name, n) for n in needed | here}
            joint = self._joint[name] = JointRows(arrays, self._starts)
        return joint

    def _ragged_shard(self, name: str, number: int) -> Ragged:
        found = self._files(number)[name]
        assert isinstance(found, Ragged)  # noqa: S101  # it is asked for rows of many lengths
        return found

    def _is_held(self, name: str) -> bool:
        return False

    def _read_file(self, path: Path, shape: tuple[int, ...], dtype: str) -> npt.NDArray[Any]:
        """Read a file front to back: what lies on this node's disk is mapped, what lies elsewhere goes into memory."""
        in_place = self.streaming.in_place
        return map_npy(path, shape, dtype, whole=True) if in_place else read_npy(path, shape, dtype)

"""From a source to shards: the plan, which is the same wherever it is made, and the work, on all cores of a node."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array, Shard, shard_from_json
from shared.data.dataset.order import RowNumbers
from shared.data.sources import BadFile, BadFiles, ItemSource
from shared.data.write.moments import Moments
from shared.data.write.request import EncodedSource
from shared.data.write.splits import count_labels, first_item, stratified_split
from shared.data.write.spool import Spool
from shared.data.write.writer import SHARD_BYTES, ShardJob, plan_split, write_picture_shard, write_shard
from shared.distributed import Refusal

_SHARD_ROWS = (256, 2**16)
_CHUNK_BYTES = 2**21  # what is computed on while it lies in the cache: 8 MiB took a tenth longer
_CHUNK_ROWS = (1, 2**12)
_WORTH_PROCESSES = 2_000  # images to decode, below which starting worker processes costs more than it saves


@dataclass(frozen=True, slots=True)
class ItemPlan:
    """Every shard of a dataset of items, in order, and the numbers of each split's items in the source.

    These are on disk: a plan of millions of items is a small one. The `source` is what the shards are written from.
    """

    source: ItemSource
    items: Mapping[str, Spool]
    jobs: list[ShardJob]

    def items_of(self, job: ShardJob) -> RowNumbers:
        """Items of a shard; read anew each time."""
        return self.items[job.split][job.first : job.last]


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """What became of a job; `shard`, and with it the moments of ``x``, is None if none of its files could be used.

    `target` are the moments of ``y``, for regression; `picture_bytes` those of encoded pictures.
    """

    split: str
    number: int
    shard: Shard | None
    moments: Moments | None
    target: Moments | None
    bad: tuple[BadFile, ...]
    picture_bytes: int = 0

    @classmethod
    def from_json(cls, record: Mapping[str, Any], arrays: Mapping[str, Array]) -> WrittenShard:
        """From what ``asdict`` makes of it, for the other nodes."""
        return cls(
            split=record["split"],
            number=record["number"],
            shard=None if record["shard"] is None else shard_from_json(record["shard"], arrays),
            moments=_moments(record["moments"]),
            target=_moments(record["target"]),
            bad=tuple(BadFile(**bad) for bad in record["bad"]),
            picture_bytes=record["picture_bytes"],
        )


def _moments(record: Mapping[str, Any] | None) -> Moments | None:
    return None if record is None else Moments(record["count"], tuple(record["mean"]), tuple(record["squares"]))


def item_arrays(source: ItemSource) -> dict[str, Array]:
    """The dataset's arrays: the rows, and a label or target for each."""
    return {"x": source.array, "y": Array((), "int64" if source.task == "classification" else "float64")}


def plan_items(
    source: ItemSource, *, validation_fraction: float, test_fraction: float, seed: int, rows_per_shard: int | None
) -> ItemPlan:
    """Every shard of the dataset, in order: a function of the source and these numbers alone.

    What a table's columns are encoded with is learnt from the items of train. Fractions are shares of all items;
    without ``rows_per_shard`` files have about 16 MiB.

    Raises:
        Refusal: if there are too few items, of a class or altogether.
    """
    classes = source.task == "classification"
    # For regression all items are of one class: a view of a single zero, whatever its length.
    strata = source.labels if classes else np.broadcast_to(np.int8(0), len(source.labels))
    if classes and (validation_fraction > 0 or test_fraction > 0):
        _refuse_lonely(source)
    splits = stratified_split(strata, validation_fraction=validation_fraction, test_fraction=test_fraction, seed=seed)
    source = source.encoded(splits["train"])
    row_bytes = source.file_bytes if isinstance(source, EncodedSource) else _row_bytes(source.array)
    size = rows_per_shard or int(np.clip(SHARD_BYTES // row_bytes, *_SHARD_ROWS))
    jobs = [job for split, items in splits.items() for job in plan_split(split, [range(len(items))], size)]
    return ItemPlan(source, splits, jobs)


def _refuse_lonely(source: ItemSource) -> None:
    """A class with one item cannot be in train and be measured too."""
    counts = count_labels(source.labels)
    lonely = np.flatnonzero(counts == 1)
    if len(lonely):
        item = first_item(source.labels, lonely[0])
        others = f", and {len(lonely) - 1} classes more have one" if len(lonely) > 1 else ""
        raise Refusal(
            f"the class {source.classes[lonely[0]]!r} has a single item ({source.where(item)}){others}: "
            "two are needed, one to train on and one to measure with. Add to it, remove it, or set both fractions to 0."
        )


def _row_bytes(array: Array) -> int:
    return max(1, prod(array.shape) * np.dtype(array.dtype).itemsize)


def write_shards(
    source: ItemSource, plan: ItemPlan, jobs: list[ShardJob], output: Path, policy: BadFiles
) -> Iterator[WrittenShard]:
    """Write some shards of a plan in order, with all cores of this machine where there is enough to decode.

    Files that cannot be used are treated as the policy says; those left out are in what is returned, not in it.
    """
    cores = len(os.sched_getaffinity(0))
    images = sum(job.rows for job in jobs)
    if not source.decodes or images < _WORTH_PROCESSES or min(cores, len(jobs)) < 2:
        yield from (_write_items(source, job, plan.items_of(job), output, policy) for job in jobs)
        return
    with ProcessPoolExecutor(
        min(cores, len(jobs)),
        # Not fork: the control plane's threads are running in this process.
        mp_context=multiprocessing.get_context("forkserver"),
        initializer=_start_worker,
        initargs=(source, output, policy),
    ) as pool:
        try:
            yield from pool.map(_write_in_worker, jobs, map(plan.items_of, jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _write_items(source: ItemSource, job: ShardJob, items: RowNumbers, output: Path, policy: BadFiles) -> WrittenShard:
    """Write one shard, reading its items chunk by chunk."""
    if isinstance(source, EncodedSource):
        return _write_pictures(source, job, items, output, policy)
    moments: list[Moments] = []
    targets: list[Moments] = []
    bad = BadFiles(policy.skip, policy.folder)
    # Part of the result, because sums are made chunk by chunk; so it depends on the rows alone.
    step = int(np.clip(_CHUNK_BYTES // _row_bytes(source.array), *_CHUNK_ROWS))

    labels = source.labels[items]

    def chunks() -> Iterator[dict[str, Any]]:
        for start in range(0, job.rows, step):
            asked, y = items[start : start + step], labels[start : start + step]
            before = len(bad.found)
            x = source.read(asked, bad)
            if len(x) < len(asked):
                y = y[~np.isin(asked, [file.item for file in bad.found[before:] if file.item is not None])]
            if len(x):
                moments.append(Moments.of(x))
                if source.task == "regression":
                    targets.append(Moments.of(y[:, None]))
            yield {"x": x, "y": y}

    arrays = item_arrays(source)
    shard = write_shard(output, job.split, job.number, rows=job.rows, arrays=arrays, chunks=chunks())
    of_x, of_y = (Moments.merge(parts) if parts else None for parts in (moments, targets))
    return WrittenShard(job.split, job.number, shard, of_x, of_y, tuple(bad.found))


def _write_pictures(
    source: EncodedSource, job: ShardJob, items: RowNumbers, output: Path, policy: BadFiles
) -> WrittenShard:
    """Write one shard of encoded pictures; their bytes wait in a temporary file, since a shard begins with its size."""
    moments: list[Moments] = []
    good: list[npt.NDArray[np.bool_]] = []
    sizes, pictures, bad = [0], Spool((), "uint8"), BadFiles(policy.skip, policy.folder)
    step = int(np.clip(_CHUNK_BYTES // _row_bytes(source.array), *_CHUNK_ROWS))
    for start in range(0, job.rows, step):
        asked, before = items[start : start + step], len(bad.found)
        contents, x = source.read_encoded(asked, bad)
        good.append(~np.isin(asked, [file.item for file in bad.found[before:] if file.item is not None]))
        if contents:
            moments.append(Moments.of(x))
            pictures.append(np.frombuffer(b"".join(contents), np.uint8))
            sizes += map(len, contents)
    shard = None
    if moments:
        offsets, y = np.cumsum(sizes, dtype=np.int64), source.labels[items][np.concatenate(good)]
        arrays = item_arrays(source)
        shard = write_picture_shard(
            output, job.split, job.number, pictures=pictures, offsets=offsets, y=y, arrays=arrays
        )
    of_x = Moments.merge(moments) if moments else None
    return WrittenShard(job.split, job.number, shard, of_x, None, tuple(bad.found), pictures.rows)


_worker: tuple[ItemSource, Path, BadFiles]  # in a worker process: sent once, not with every shard


def _start_worker(source: ItemSource, output: Path, policy: BadFiles) -> None:
    global _worker  # noqa: PLW0603  # the way to keep something in a pool's worker
    _worker = source, output, policy
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker waits for work for ever when the rank that it works for was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _write_in_worker(job: ShardJob, items: RowNumbers) -> WrittenShard:
    source, output, policy = _worker
    return _write_items(source, job, items, output, policy)

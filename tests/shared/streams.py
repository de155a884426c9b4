"""Datasets of many small shards, whose rows say their own number, and the feed of a training on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from shared.data import Array, Dataset, Index, Statistics
from shared.data.dataset.index import read_index
from shared.data.dataset.streamed import ShardStreaming, StreamedDataset
from shared.data.write import write_index, write_shard
from shared.settings.running import LoaderSettings
from shared.settings.training import LoopSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.feed import BatchFeed, RowReader

CPU = torch.device("cpu")


def write_numbered(folder: Path, shard_rows: Sequence[int], *, width: int = 4, first: int = 0) -> Path:
    """Rows of float32 that are the row's number, from `first` on, and the number as class; one validation row."""
    arrays = {"x": Array((width,), "float32"), "y": Array((), "int64")}
    ends = np.cumsum([0, *shard_rows])
    shards = []
    for number, rows in enumerate(shard_rows):
        y = np.arange(ends[number], ends[number + 1]) + first
        chunk = {"x": np.repeat(y[:, None], width, axis=1), "y": y}
        shards.append(write_shard(folder, "train", number, rows=rows, arrays=arrays, chunks=[chunk]))
    one = {"x": np.zeros((1, width)), "y": np.zeros(1, np.int64)}
    validation = write_shard(folder, "validation", 0, rows=1, arrays=arrays, chunks=[one])
    splits = {"train": tuple(s for s in shards if s), "validation": (validation,), "test": ()}
    statistics = Statistics((0.0,) * width, (1.0,) * width)
    write_index(folder, Index("classification", arrays, ("all",), statistics, splits))
    return folder


def streamed(folder: Path, *, buffer_bytes: int, threads: int = 1) -> Dataset:
    """A dataset, opened to be streamed."""
    streaming = ShardStreaming(buffer_bytes, threads)
    return StreamedDataset(folder, read_index(folder), streaming=streaming)


def feed_of(data: Dataset, plan: BatchPlan, rank: int = 0, seed: int = 3, workers: int = 1) -> BatchFeed:
    """The feed of one rank."""
    loader = LoaderSettings(loader_workers=workers)
    return BatchFeed(RowReader(data.split("train"), CPU, loader), plan, rank, LoopSettings(epochs=9), loader, seed)


def rows_of(batches: object) -> list[list[int]]:
    """The numbers of the rows of some batches, each row being whole and beside its label."""
    found = []
    for x, y in batches:  # type: ignore[attr-defined]
        assert torch.equal(x, y[:, None].expand_as(x).float())
        found.append(y.tolist())
    return found

"""Reading alone, which no step hides: rows of several kinds that are streamed, against the same rows held in memory.

    python benchmarks/reading.py
    python benchmarks/reading.py copying

How long a file takes to be mapped depends on who has brought it into the system's memory: what was just written lies
there in pages of 4 KiB; what the streaming reader has read from the disk, in pages of 2 MiB, if the file system has
them. Both are measured: files as they were written, and files that the system was made to forget, so that the reader
reads them from the disk in the first epoch, which does not count. The seconds of the processor, the least of five
epochs, show more than time does where other processes take the second core: a thread reads, another takes the batches.

Copying alone (the second command) is the floor of rows of 3 kB: the same rows in batches of one size, by an index that
is there, out of the shards as they are mapped and out of memory. What an epoch costs above it is opening shards, the
order, looking for rows, and Python's handing over from thread to thread, which excludes all other Python meanwhile.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from side_by_side import Comparison, in_turn, keep, seconds
from streaming import BATCH, feed, processor_seconds, read, stream

from shared.data import Array, Dataset, Index, Statistics
from shared.data.dataset.encodings import TextEncoding
from shared.data.dataset.index import read_index
from shared.data.dataset.npy_files import map_npy
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.reader import JointRows
from shared.data.dataset.streamed import StreamedDataset
from shared.data.write import write_index, write_shard

SHARD_BYTES, MOST_SHARD_ROWS = 16 * 2**20, 2**16
KINDS = {
    "784 float32": (Array((784,), "float32"), 65_536),
    "a picture of 32 x 32 x 3 bytes": (Array((32, 32, 3), "uint8"), 65_536),
    "a picture of 8 x 8 bytes": (Array((8, 8, 1), "uint8"), 1_000_000),
    "30 columns of a table, float32": (Array((30,), "float32"), 1_000_000),
    "257 tokens, uint16": (Array((257,), "uint16"), 300_000),
}
"""A row of each, and how many there are; those of tokens have no label."""
LARGE_ROWS = list(KINDS)[:2]


def main() -> None:
    """Measure and keep; with `copying`, the floor."""
    torch.set_num_threads(1)
    if sys.argv[1:] == ["copying"]:
        keep("copying", [compare_copying(kind) for kind in LARGE_ROWS])
        return
    compared, processor = [], {}
    with tempfile.TemporaryDirectory() as name:
        for number, kind in enumerate(KINDS):
            folder = Path(name) / str(number)
            write_rows(folder, *KINDS[kind])
            for one, processor_ratio in compare(folder, kind):
                compared.append(one)
                processor[one.name] = processor_ratio
    keep("reading", compared, ratio_of_processor_seconds=processor)


def compare(folder: Path, kind: str) -> Iterator[tuple[Comparison, float]]:
    """Read a dataset as it was written, then as it comes from the disk; with the ratio of the processor's time."""
    for state in ("just written", "from the disk"):
        if state == "from the disk":
            for file in folder.rglob("*.npy"):
                forget_pages(file)
        streamed, memory = feed(stream(folder)), feed(Dataset(folder, read_index(folder), "memory"))
        one = in_turn(
            f"an epoch, {state}, rows of {kind}",
            ("streamed", partial(read, streamed)),  # it reads the files first
            ("held in memory", partial(read, memory)),
            rounds=15,
            limit="1.11: 0.9 of the throughput",
        )
        yield one, round(processor_seconds(streamed) / processor_seconds(memory), 2)


def compare_copying(kind: str) -> Comparison:
    """Copy the rows of all shards, which come from the disk, and do nothing else."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, *KINDS[kind])
        for file in folder.rglob("*.npy"):
            forget_pages(file)
        return compare_gathers(folder, kind)


def compare_gathers(folder: Path, kind: str) -> Comparison:
    """Copy out of shards that are mapped, in the order of streaming, against out of memory, in the same order."""
    split = StreamedDataset(folder, read_index(folder)).split("train")
    starts = np.cumsum([0, *(shard.rows for shard in split.shards)])
    x = split.arrays["x"]
    shards = {
        number: map_npy(folder / shard.files["x"].path, (shard.rows, *x.shape), x.dtype, whole=True)
        for number, shard in enumerate(split.shards)
    }
    joint, order = JointRows(shards, starts), split.epoch_places(0, 0)(0, split.rows)
    place = joint.index(np.searchsorted(starts[1:], order, side="right"), order)
    mapped, held = torch.from_numpy(joint.rows), torch.from_numpy(np.concatenate(list(shards.values()))).clone()
    return in_turn(
        f"copying alone, from the disk, rows of {kind}",
        ("out of mapped shards", lambda: seconds(lambda: copy_batches(mapped, place))),
        ("out of memory", lambda: seconds(lambda: copy_batches(held, order))),
        rounds=15,
        limit="1",
    )


def copy_batches(rows: torch.Tensor, order: RowNumbers) -> None:
    """Copy batches as both readers do."""
    for part in torch.from_numpy(order).split(BATCH):
        rows.index_select(0, part)


def forget_pages(file: Path) -> None:
    """Make the system forget a file, so that it is read from the disk next."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def write_rows(folder: Path, array: Array, rows: int) -> None:
    """Write a dataset of random numbers, in shards as prepare_data makes them."""
    text = array.dtype == "uint16"
    arrays = {"x": array} if text else {"x": array, "y": Array((), "int64")}
    draw, shards = np.random.default_rng(0), []
    size = min(MOST_SHARD_ROWS, SHARD_BYTES // (math.prod(array.shape) * np.dtype(array.dtype).itemsize))
    for number, first in enumerate(range(0, rows, size)):
        count = min(size, rows - first)
        chunk = {"x": draw.integers(0, 256, (count, *array.shape), np.uint8).astype(array.dtype)}
        if not text:
            chunk["y"] = draw.integers(0, 10, count)
        shard = write_shard(folder, "train", number, rows=count, arrays=arrays, chunks=[chunk])
        assert shard is not None
        shards.append(shard)
    splits = {"train": tuple(shards), "validation": (), "test": ()}
    if text:
        none = dict.fromkeys(splits, 0)
        encoding = TextEncoding("bytes", 257, array.shape[0] - 1, 256, 256, none, none, none)
        index = Index("language_modeling", arrays, (), None, splits, text=encoding)
    else:
        statistics = Statistics((0.5,) * array.shape[-1], (0.3,) * array.shape[-1])
        index = Index("classification", arrays, tuple("0123456789"), statistics, splits)
    write_index(folder, index)


if __name__ == "__main__":
    main()

"""Rows that are streamed, against the same rows held in memory: an epoch of training, and of reading alone.

    python benchmarks/streaming.py

65,536 rows of 784 float32 (206 MB) in shards of 16 MB, through a buffer of 40 MB: the training has the library's
lightest model, whose step leaves little to hide behind. Reading alone copies rows as often as from memory, once. What
is done beside it, mapping files, looking for rows and handing over, is hidden where there is a core for it, and not
on a busy machine: the seconds of the processor say how much it is. Memory is what a process of its own has at most,
without what it had before, torch among it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from side_by_side import in_turn, keep

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from shared.data import Array, Dataset, Index, Statistics  # noqa: E402
from shared.data.dataset.index import read_index  # noqa: E402
from shared.data.dataset.streamed import ShardStreaming, StreamedDataset  # noqa: E402
from shared.data.write import write_index, write_shard  # noqa: E402
from shared.models import build_network  # noqa: E402
from shared.settings.running import LoaderSettings  # noqa: E402
from shared.settings.training import LoopSettings  # noqa: E402
from shared.training.core.batch_plan import BatchPlan  # noqa: E402
from shared.training.torch.feed import BatchFeed, RowReader  # noqa: E402

ROWS, WIDTH, SHARD_ROWS, BATCH = 65_536, 784, 5_000, 256
BUFFER_BYTES = 40_000_000
EPOCHS = count()
"""Each in an order of its own."""


def main() -> None:
    """Measure and keep; or, with a folder, print by how many MB an epoch of it lets this process grow."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        print(growth(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, large = write_rows(folder / "small", ROWS), write_rows(folder / "large", 4 * ROWS)
        memory, streamed, twice = feed(Dataset.open(small)), feed(stream(small)), feed(stream(small), 2)
        compared = [
            in_turn(
                f"an epoch of {what}",
                (ours, partial(epoch, one)),
                ("held in memory", partial(epoch, memory)),
                rounds=rounds,
                limit=limit,
            )
            for what, epoch, rounds, limit in (
                ("training an mlp", train, 7, "1.11: 0.9 of the throughput"),
                ("reading alone", read, 15, "1.11: 0.9 of the throughput"),
            )
            for ours, one in (
                ("streamed", streamed),
                ("streamed, 2 loader_workers", twice),
            )
        ]
        grown = {f"{rows:,} rows": measured(data) for rows, data in ((ROWS, small), (4 * ROWS, large))}
        both = (("memory", memory), ("streamed", streamed))
        processor = {what: round(processor_seconds(one), 3) for what, one in both}
    keep("streaming", compared, megabytes_grown=grown, processor_seconds_of_reading=processor)


def write_rows(folder: Path, rows: int) -> Path:
    """A dataset of random numbers."""
    arrays = {"x": Array((WIDTH,), "float32"), "y": Array((), "int64")}
    draw, shards = np.random.default_rng(0), []
    for number, first in enumerate(range(0, rows, SHARD_ROWS)):
        count = min(SHARD_ROWS, rows - first)
        chunk: dict[str, NDArray[Any]] = {
            "x": draw.random((count, WIDTH), np.float32),
            "y": draw.integers(0, 10, count),
        }
        shard = write_shard(folder, "train", number, rows=count, arrays=arrays, chunks=[chunk])
        assert shard is not None
        shards.append(shard)
    statistics = Statistics((0.5,) * WIDTH, (0.3,) * WIDTH)
    splits = {"train": tuple(shards), "validation": (), "test": ()}
    write_index(folder, Index("classification", arrays, tuple("0123456789"), statistics, splits))
    return folder


def stream(folder: Path) -> Dataset:
    """Open a dataset to be streamed."""
    return StreamedDataset(folder, read_index(folder), streaming=ShardStreaming(BUFFER_BYTES))


def feed(data: Dataset, workers: int = 1) -> BatchFeed:
    """The feed of one rank."""
    loader = LoaderSettings(loader_workers=workers)
    reader = RowReader(data.split("train"), torch.device("cpu"), loader)
    return BatchFeed(reader, BatchPlan(BATCH, 1, 1), 0, LoopSettings(epochs=10**6), loader, 0)


def read(rows: BatchFeed) -> float:
    """Seconds to read an epoch."""
    start = time.perf_counter()
    for _ in rows.epoch(next(EPOCHS)):
        pass
    return time.perf_counter() - start


def train(rows: BatchFeed) -> float:
    """Seconds to train for an epoch."""
    model = build_network("mlp", (WIDTH,), 10, None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    start = time.perf_counter()
    for x, y in rows.epoch(next(EPOCHS)):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - start


def processor_seconds(rows: BatchFeed) -> float:
    """Time of the processor to read an epoch, the least of five."""
    found = []
    for _ in range(5):
        start = time.process_time()
        read(rows)
        found.append(time.process_time() - start)
    return min(found)


def growth(folder: Path) -> int:
    """MB by which the largest resident size of this process is larger after an epoch than before."""
    before = largest_size()
    read(feed(stream(folder)))
    return (largest_size() - before) // 1000


def largest_size() -> int:
    """Kilobytes; not of getrusage, which begins with what the parent had."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0])


def measured(folder: Path) -> int:
    """The same of a process of its own."""
    command = [sys.executable, __file__, str(folder)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()

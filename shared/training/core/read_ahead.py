"""The rows of a rank's batches, and reading them ahead with threads, whatever the framework."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from shared.data import Split, rank_slice
from shared.data.dataset.order import RowNumbers
from shared.training.core.batch_plan import BatchPlan

Read = TypeVar("Read")
Asked = TypeVar("Asked")


def rank_batches(
    split: Split, plan: BatchPlan, rank: int, seed: int, epoch: int, start_batch: int
) -> Iterator[RowNumbers]:
    """The rank's part of each global batch of an epoch, in an order that the number of ranks does not change."""
    chosen = split.batches(batch_size=plan.batch_size, seed=seed, epoch=epoch, start_batch=start_batch)
    return (rank_slice(batch, rank, plan.world_size) for batch in chosen)


def rank_batches_together(
    split: Split, plan: BatchPlan, rank: int, seed: int, epoch: int, *, batches: range, count: int
) -> Iterator[RowNumbers]:
    """Those of `rank_batches`, `count` at a time, for what costs the same for many rows as for few.

    Arrays of (count, rows of the rank); the last has fewer batches.
    """
    size = plan.rows_per_rank
    together = split.batches_together(
        count,
        batch_size=plan.batch_size,
        seed=seed,
        epoch=epoch,
        start_batch=batches.start,
        stop_batch=batches.stop,
    )
    return (some[:, rank * size : (rank + 1) * size] for some in together)


def read_ahead(read: Callable[[Asked], Read], order: Iterator[Asked], workers: int, prefetch: int) -> Iterator[Read]:
    """Keep `prefetch` batches in flight in `workers` threads, which NumPy lets work meanwhile, and give them in order.

    `workers` and `prefetch` are 1 or more; `read`, which reads one batch, is called from several threads.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read")
    flying: deque[Future[Read]] = deque()
    try:
        for asked in order:
            flying.append(pool.submit(read, asked))
            if len(flying) > prefetch:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

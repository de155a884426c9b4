"""Reading ahead with threads, whatever the framework: the reading is NumPy's, which lets others work meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from shared.data.dataset.order import RowNumbers

Read = TypeVar("Read")


def read_ahead(
    read: Callable[[RowNumbers], Read], order: Iterator[RowNumbers], workers: int, prefetch: int
) -> Iterator[Read]:
    """Keep `prefetch` batches in flight in `workers` threads, and give them in order.

    Args:
        read: reads the rows of a batch; called from several threads.
        order: the batches.
        workers: 1 or more.
        prefetch: 1 or more.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="read")
    flying: deque[Future[Read]] = deque()
    try:
        for rows in order:
            flying.append(pool.submit(read, rows))
            if len(flying) > prefetch:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

"""Which rows come when: pure functions of (seed, epoch), whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

RowNumbers = npt.NDArray[np.int64]
"""Row numbers of a split."""


def epoch_order(rows: int, seed: int, epoch: int) -> RowNumbers:
    """Permutation of ``range(rows)`` that depends on seed and epoch (both 0 or more) alone."""
    return np.random.default_rng((seed, epoch)).permutation(rows)


def batches(rows: int, *, batch_size: int, seed: int, epoch: int, start_batch: int = 0) -> Iterator[RowNumbers]:
    """Global batches of an epoch, from the batch ``start_batch`` on; the last partial one is dropped.

    Going on from any batch costs the same: the permutation is made again and nothing is read.

    Raises:
        ValueError: if not even one batch fits into the rows.
    """
    starts = batch_starts(rows, batch_size, start_batch)
    order = epoch_order(rows, seed, epoch)
    return (order[start : start + batch_size] for start in starts)


def batch_starts(rows: int, batch_size: int, start_batch: int = 0) -> range:
    """Places in an epoch at which its whole batches begin, from the batch ``start_batch`` on.

    Raises:
        ValueError: if not even one batch fits into the rows.
    """
    if not 1 <= batch_size <= rows:
        raise ValueError(f"batch_size {batch_size} does not lie between 1 and the {rows} rows of the split")
    return range(start_batch * batch_size, rows - batch_size + 1, batch_size)


def rank_slice(batch: RowNumbers, rank: int, world_size: int) -> RowNumbers:
    """The rank's part of a global batch: contiguous, and of the same length on every rank.

    Raises:
        ValueError: if the batch cannot be split evenly.
    """
    if len(batch) % world_size:
        raise ValueError(f"a batch of {len(batch)} rows does not split evenly over {world_size} ranks")
    size = len(batch) // world_size
    return batch[rank * size : (rank + 1) * size]

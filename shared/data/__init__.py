"""Prepared datasets: `.npy` shards with an index, read by every trainer, written by prepare_data and prepare_text.

Reading needs NumPy alone, and `dataset/` alone of the rooms here: `write/` makes shards of what `sources/` (images and
tables) and `text/` give, which read files with `formats/`.

A dataset is a folder::

    index.json                  what is in it: arrays, classes, statistics, the shards and their sha256
    skipped.csv                 files that could not be used, if there were any and they were to be left out
    train/x-00000.npy           rows of one array, in the source's dtype; images are channels-last (H, W, C)
    train/y-00000.npy
    validation/...  test/...
    tokenizer/                  of a text whose tokens are not its bytes

Rows of text that differ in length lie in ``x-00000.npy`` one after another; ``x_offsets-00000.npy`` says where.

Reading: ``Dataset.open(folder).split("train").take(rows)``. The order of rows comes from (seed, epoch) alone, so it
does not depend on the number of ranks, and a run can go on from any batch at no cost.
"""

from shared.data.dataset.encodings import TextEncoding
from shared.data.dataset.index import Array, Index, Shard, ShardFile, Statistics, Target
from shared.data.dataset.order import batches, epoch_order, rank_slice
from shared.data.dataset.ragged import Ragged
from shared.data.dataset.reader import Dataset, Split

__all__ = [
    "Array",
    "Dataset",
    "Index",
    "Ragged",
    "Shard",
    "ShardFile",
    "Split",
    "Statistics",
    "Target",
    "TextEncoding",
    "batches",
    "epoch_order",
    "rank_slice",
]

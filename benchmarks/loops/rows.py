"""Datasets of random rows: of as many batches as are wanted, and nothing to validate on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shared.data import Array, Index, Statistics, TextEncoding
from shared.data.write import write_index, write_shard


def write_pictures(folder: Path, rows: int, shape: tuple[int, ...]) -> None:
    """Random images of ten classes."""
    random = np.random.default_rng(0)
    arrays = {"x": Array(shape, "uint8"), "y": Array((), "int64")}
    chunk = {"x": random.integers(0, 17, (rows, *shape), np.uint8), "y": random.integers(0, 10, rows)}
    shard = write_shard(folder, "train", 0, rows=rows, arrays=arrays, chunks=[chunk])
    assert shard is not None
    splits = {"train": (shard,), "validation": (), "test": ()}
    write_index(folder, Index("classification", arrays, tuple("0123456789"), Statistics((8.0,), (4.9,)), splits))


def write_tokens(folder: Path, rows: int, sequence_length: int) -> None:
    """Random bytes as the text of a language model."""
    arrays = {"x": Array((sequence_length + 1,), "uint16")}
    x = np.random.default_rng(0).integers(0, 256, (rows, sequence_length + 1)).astype("uint16")
    shard = write_shard(folder, "train", 0, rows=rows, arrays=arrays, chunks=[{"x": x}])
    assert shard is not None
    count = {"train": x.size, "validation": 0, "test": 0}
    text = TextEncoding("bytes", 257, sequence_length, 256, 256, count, count, count)
    splits = {"train": (shard,), "validation": (), "test": ()}
    write_index(folder, Index("language_modeling", arrays, (), None, splits, text=text))

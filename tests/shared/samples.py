"""The same labelled images or rows, written as every kind of file that prepare_data reads; tiny datasets of text."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from PIL import Image
from pyarrow import parquet
from sklearn.datasets import load_digits

from shared.data import Array, Index, Ragged, TextEncoding
from shared.data.write import write_index, write_ragged_shard, write_shard

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


def digits() -> tuple[Images, Labels]:
    """The digits of scikit-learn: (1797, 8, 8, 1) and their labels."""
    found = load_digits()
    return found.images.astype(np.uint8)[..., None], found.target.astype(np.int64)


def write_image_folder(folder: Path, images: Images, labels: Labels) -> None:
    """One folder for each class; the file's name is the image's number."""
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        path = folder / str(label) / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(path)


def write_npy(folder: Path, rows: npt.NDArray[np.generic], labels: Labels) -> None:
    """Two arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "x.npy", rows)
    np.save(folder / "y.npy", labels)


def write_csv(folder: Path, rows: npt.NDArray[np.generic], labels: Labels) -> None:
    """Two files with a line of names each; the target stands in the middle."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame(rows, columns=[f"p{number:02d}" for number in range(rows.shape[1])])
    table.insert(min(30, rows.shape[1]), "target", labels)
    table[:1000].to_csv(folder / "a.csv", index=False)
    table[1000:].to_csv(folder / "b.csv", index=False)


def write_parquet(folder: Path, rows: npt.NDArray[np.generic], labels: Labels) -> None:
    """Two files of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, name in ((slice(0, 1000), "a.parquet"), (slice(1000, None), "b.parquet")):
        columns = {f"p{number:02d}": rows[part, number] for number in range(rows.shape[1])}
        parquet.write_table(pa.table({**columns, "target": labels[part]}), folder / name, row_group_size=300)


IMAGE_WRITERS: Mapping[str, Callable[[Path, Images, Labels], None]] = {
    "image_folder": write_image_folder,
    "npy": write_npy,
}


def write_language_dataset(
    folder: Path, *, rows: tuple[int, int, int] = (64, 8, 16), sequence_length: int = 16, seed: int = 0
) -> Path:
    """A dataset for language_modeling: bytes of short sentences that can be learnt; rows of train, validation, test."""
    arrays = {"x": Array((sequence_length + 1,), "uint16")}
    splits, size, gzip_size, tokens = {}, {}, {}, {}
    for number, (split, count) in enumerate(zip(("train", "validation", "test"), rows, strict=True)):
        documents = sentences(seed=seed + number, size=count * sequence_length + 1)
        stream = np.concatenate([np.append(np.frombuffer(text, np.uint8).astype("uint16"), 256) for text in documents])
        x = np.lib.stride_tricks.sliding_window_view(stream, sequence_length + 1)[::sequence_length][:count]
        shard = write_shard(folder, split, 0, rows=count, arrays=arrays, chunks=[{"x": x}]) if count else None
        splits[split] = (shard,) if shard else ()
        joined = b"".join(documents)
        size[split], gzip_size[split], tokens[split] = len(joined), len(gzip.compress(joined, 9)), len(stream)
    text = TextEncoding("bytes", 257, sequence_length, 256, 256, size, gzip_size, tokens)
    write_index(folder, Index("language_modeling", arrays, (), None, splits, text=text))
    return folder


def write_text_classification_dataset(
    folder: Path, *, rows: tuple[int, int, int] = (64, 16, 16), sequence_length: int = 32, seed: int = 0
) -> Path:
    """A dataset for text_classification: bytes of passages of 4 to sequence_length tokens; which words tell the class."""
    random = np.random.default_rng(seed)
    words = {"animal": ("cat ", "dog ", "bird "), "tool": ("saw ", "axe ", "drill ")}
    arrays = {"x": Array((), "uint16", ragged=True), "y": Array((), "int64")}
    splits, size, tokens = {}, {}, {}
    for split, count in zip(("train", "validation", "test"), rows, strict=True):
        y = random.integers(0, 2, count)
        chosen = [random.choice(tuple(words.values())[label], sequence_length // 3).tolist() for label in y]
        lengths = random.integers(4, sequence_length + 1, count)
        passages = ["".join(some).encode()[:length] for some, length in zip(chosen, lengths, strict=True)]
        x = Ragged.of([np.frombuffer(passage, np.uint8) for passage in passages], "uint16")
        splits[split] = (write_ragged_shard(folder, split, 0, x=x, y=y, arrays=arrays),) if count else ()
        size[split], tokens[split] = len(x.values), len(x.values)
    text = TextEncoding("bytes", 257, sequence_length, 256, 256, size, {}, tokens)
    write_index(folder, Index("text_classification", arrays, tuple(words), None, splits, text=text))
    return folder


def sentences(*, seed: int, size: int) -> list[bytes]:
    """Short documents of made-up sentences, of so many bytes together or a little more."""
    random = np.random.default_rng(seed)
    parts = (("the ", "a "), ("cat ", "dog ", "bird "), ("sees ", "likes "), ("the ", "a "), ("fish.\n", "tree.\n"))
    found: list[bytes] = []
    while size > 0:
        found.append("".join(random.choice(part) for _ in range(3) for part in parts).encode())
        size -= len(found[-1])
    return found

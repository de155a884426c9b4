"""CIFAR's batches and MNIST's files: size and colour on request, and damage named by path."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.data.sources import SOURCES, BadFiles, ItemSource, SourceRequest
from shared.distributed import Refusal
from tests.shared import samples


def open_source(dataset: str, folder: Path, **given: Any) -> ItemSource:
    return SOURCES[dataset](SourceRequest(dataset, folder, **given))


def read(source: ItemSource) -> np.ndarray:
    return source.read(np.arange(len(source.labels)), BadFiles())


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    images, labels = samples.digits()
    samples.write_cifar(tmp_path / "cifar", samples.enlarged(images[:1000]), labels[:1000])
    return tmp_path / "cifar"


@pytest.fixture
def idx(tmp_path: Path) -> Path:
    images, labels = samples.digits()
    samples.write_idx(tmp_path / "idx", images[:100], labels[:100])
    return tmp_path / "idx"


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_cifar_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    images, labels = samples.digits()
    images = samples.enlarged(images[:30])
    samples.write_cifar(tmp_path, images, labels[:30], protocol)
    source = open_source("cifar", tmp_path)
    np.testing.assert_array_equal(read(source), images)
    assert source.labels[:].tolist() == labels[:30].tolist()
    assert source.classes == tuple("0123456789")


def test_cifar_100_has_fine_labels_and_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, rows in (("train", 5), ("test", 2)):
        batch = {b"data": np.zeros((rows, 3072), np.uint8), b"fine_labels": [3] * rows, b"coarse_labels": [0] * rows}
        (folder / name).write_bytes(pickle.dumps(batch, 2))
    meta = {b"fine_label_names": [b"ant", b"bee", b"cat", b"dog"], b"coarse_label_names": [b"x"]}
    (folder / "meta").write_bytes(pickle.dumps(meta, 2))
    source = open_source("cifar", tmp_path)
    assert (len(source.labels), source.classes, set(source.labels[:].tolist())) == (
        7,
        ("ant", "bee", "cat", "dog"),
        {3},
    )


def test_size_and_colour(cifar: Path, idx: Path) -> None:
    assert open_source("cifar", cifar, image_size=16, color="grayscale").array.shape == (16, 16, 1)
    small = read(open_source("cifar", cifar, image_size=16))
    assert (small.shape, small.dtype) == ((1000, 16, 16, 3), np.uint8)
    coloured = read(open_source("idx", idx, color="rgb"))
    np.testing.assert_array_equal(coloured, read(open_source("idx", idx)).repeat(3, axis=3))
    assert read(open_source("idx", idx, image_size=32, color="rgb")).shape == (100, 32, 32, 3)
    np.testing.assert_array_equal(read(open_source("idx", idx, image_size=8, color="grayscale")), coloured[..., :1])


def test_what_they_cannot_do_is_refused(cifar: Path, idx: Path) -> None:
    for dataset, folder in (("cifar", cifar), ("idx", idx)):
        with pytest.raises(
            Refusal, match=f"task regression is for dataset csv, parquet and npy; {dataset} has classes"
        ):
            open_source(dataset, folder, task="regression")
    content = struct.pack(">HBB3I", 0, 0x0D, 3, 2, 4, 4) + np.zeros((2, 4, 4), ">f4").tobytes()
    (idx / "train-images-idx3-ubyte").write_bytes(content)
    (idx / "train-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 2) + b"\0\1")
    for path in idx.glob("t10k*"):
        path.unlink()
    assert read(open_source("idx", idx)).dtype == np.float32
    with pytest.raises(Refusal, match="need images of one byte for each of 1 or 3 channels"):
        open_source("idx", idx, image_size=8)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (b"\x80\x02}q", "data_batch_2 is not a CIFAR batch that can be read"),
        ([1, 2], "it holds a list, not a dictionary"),
        ({b"labels": [1]}, "its `data` is NoneType"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "it holds 2 images and 1 labels"),
        ({b"data": np.zeros((2, 300), np.uint8), b"labels": [1, 1]}, r"its `data` is uint8 \(2, 300\)"),
        ({b"data": np.zeros((2, 3072)), b"labels": [1, 1]}, r"its `data` is float64 \(2, 3072\)"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]}, "its `labels` are not whole numbers"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": ["cat"]}, "its `labels` are not whole numbers"),
    ],
)
def test_damaged_batches(cifar: Path, batch: Any, message: str) -> None:
    content = batch if isinstance(batch, bytes) else pickle.dumps(batch, 2)
    (cifar / "data_batch_2").write_bytes(content)
    with pytest.raises(Refusal, match=message):
        open_source("cifar", cifar)
    bad = BadFiles(skip=True)
    assert len(open_source("cifar", cifar, bad=bad).labels) == 600
    assert [file.path for file in bad.found] == ["data_batch_2"]


def test_folders_without_a_batch(tmp_path: Path, cifar: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "cifar-10-python.tar.gz").touch()
    with pytest.raises(Refusal, match=r"holds no CIFAR batch .*cifar-10-python.tar.gz.*Unpack the archive"):
        open_source("cifar", tmp_path / "empty")
    (cifar / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"]}, 2))
    with pytest.raises(Refusal, match="does not name the 10 classes"):
        open_source("cifar", cifar)
    (cifar / "batches.meta").unlink()
    assert open_source("cifar", cifar).classes == tuple("0123456789")
    for path in cifar.iterdir():
        path.write_bytes(b"")
    with pytest.raises(Refusal, match="none of its 3 batches can be read"):
        open_source("cifar", cifar, bad=BadFiles(skip=True))


def images_of(count: int, side: int = 8) -> bytes:
    return struct.pack(">HBB3I", 0, 8, 3, count, side, side)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is truncated: 4 more bytes are promised, 0 are there"),
        (b"\x89PNG\r\n", "is not IDX with 3 or 4 axes: it starts with 89 50 4e 47, not 00 00 08 03"),
        (struct.pack(">HBBI", 0, 8, 1, 50) + bytes(50), "is not IDX with 3 or 4 axes: it starts with 00 00 08 01"),
        (struct.pack(">HBB3I", 0, 7, 3, 1, 1, 1), "it starts with 00 00 07 03"),
        (images_of(50) + bytes(50 * 64 - 1), r"is truncated: 3,200 more bytes are promised, 3,199 are there"),
        (images_of(50) + bytes(50 * 64 + 1), "is longer than its header says: there is more after the 3,200 bytes"),
        (images_of(49) + bytes(49 * 64), "holds 49 images, the file beside it 50 labels"),
        (images_of(50, 2**31), "claims 50 images of 2147483648 x 2147483648 x 1, which is none or too much"),
        (images_of(50, 0), "which is none or too much"),
    ],
)
@pytest.mark.parametrize("zipped", [False, True])
def test_damaged_idx(idx: Path, content: bytes, message: str, zipped: bool) -> None:
    path = idx / "train-images-idx3-ubyte"
    path.unlink()
    if zipped:
        path = path.with_name(path.name + ".gz")
        content = gzip.compress(content)
    path.write_bytes(content)
    with pytest.raises(Refusal, match=f"{path.name} .*{message}"):
        open_source("idx", idx)
    bad = BadFiles(skip=True)
    assert len(open_source("idx", idx, bad=bad).labels) == 50
    assert [file.path for file in bad.found] == [path.name]


def test_gzip_that_is_cut_or_none(idx: Path) -> None:
    whole = gzip.compress((idx / "train-images-idx3-ubyte").read_bytes())
    (idx / "train-images-idx3-ubyte").unlink()
    for content in (whole[: len(whole) // 2], b"plain", whole[:-6] + b"wrong!"):
        (idx / "train-images-idx3-ubyte.gz").write_bytes(content)
        with pytest.raises(Refusal, match=r"train-images-idx3-ubyte.gz (cannot be read|is truncated)"):
            open_source("idx", idx)


def test_idx_without_its_other_half(tmp_path: Path, idx: Path) -> None:
    (idx / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(Refusal, match=r"has no labels beside it: train-labels-idx1-ubyte or"):
        open_source("idx", idx)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "x.npy").touch()
    with pytest.raises(Refusal, match=r"holds no IDX images .*but x.npy"):
        open_source("idx", tmp_path / "empty")

"""Pictures that a dataset keeps as JPEG and PNG files: the rows of pixels, from any way of reading, and what is refused."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shared.data import Dataset
from shared.data.dataset import reader as dataset_reader
from shared.data.dataset.index import read_index
from shared.data.dataset.pictures import decode_picture
from shared.data.dataset.streamed import ShardStreaming, StreamedDataset
from shared.distributed import Refusal
from shared.settings.augmentation import AugmentationSettings
from shared.settings.running import LoaderSettings
from shared.settings.training import LoopSettings
from shared.training.augmentation.batches import plan_augmentation
from shared.training.core.batch_plan import BatchPlan
from shared.training.torch.feed import BatchFeed, RowReader
from tests.components.support import run_component

SPLITS = ("train", "validation", "test")
ORIENTATION = 0x0112


def paint(folder: Path, count: int = 36, side: int = 40) -> list[Path]:
    """Write smooth pictures of two classes, of all kinds that come up."""
    random, paths = np.random.default_rng(0), []
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        image = coarse.resize((side + number % 3, side + 8), Image.Resampling.BICUBIC)
        path = folder / "ab"[number % 2] / f"{number:03d}{('.jpg', '.png', '.bmp', '.jpg', '.gif', '.jpg')[number % 6]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[ORIENTATION] = 6
        image = image.convert("L") if number % 6 == 5 else image
        image.save(path, **({"exif": exif} if number % 6 == 3 else {}))
        paths.append(path)
    return paths


def prepare(folder: Path, output: Path, *words: object, nodes: int = 1) -> str:
    given = ("--dataset", "image_folder", "--data", folder, "--output-data", output, "--rows-per-shard", 5)
    finished = run_component("prepare_data", *given, *words, folder=folder.parent, nodes=nodes)
    assert finished.ok, finished.output
    return finished.output


def rows_of(data: Dataset) -> list[np.ndarray]:
    return [data.split(split).take(np.arange(data.index.rows(split)))[name] for split in SPLITS for name in "xy"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Some pictures, and two datasets of them: of pixels and of files."""
    base = tmp_path_factory.mktemp("pictures")
    paint(base / "images")
    prepare(base / "images", base / "pixels", "--image-size", 32)
    text = prepare(base / "images", base / "encoded", "--image-size", 32, "--image-storage", "encoded", nodes=2)
    assert re.search(r"rows of uint8 \(32, 32, 3\), 2 classes, encoded in 0\.\d MB", text)
    return base / "images", base / "pixels", base / "encoded"


@pytest.fixture(params=["held", "decoded"])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Once with a dataset that is so small that it is decoded once, and once with one that is not."""
    if request.param == "decoded":
        monkeypatch.setattr(dataset_reader, "HELD_ARRAY_BYTES", 0)
    return bool(request.param == "held")


def test_the_rows_are_those_of_pixels_however_they_are_read(folders: tuple[Path, Path, Path], *, held: bool) -> None:
    _, pixels, encoded = folders
    expected, index = rows_of(Dataset.open(pixels)), read_index(encoded)
    assert index.statistics == read_index(pixels).statistics
    for access in ("auto", "memory", "random"):
        for one, other in zip(expected, rows_of(Dataset(encoded, index, access)), strict=True):
            np.testing.assert_array_equal(one, other)
    streamed = StreamedDataset(encoded, index, streaming=ShardStreaming(20_000))
    for one, other in zip(expected, rows_of(streamed), strict=True):
        np.testing.assert_array_equal(one, other)
    assert Dataset.open(encoded).split("train").held == held
    Dataset.open(encoded).verify()


def test_files_are_kept_byte_for_byte_or_reduced_to_a_bound(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    images, _, encoded = folders
    stored = b"".join(path.read_bytes() for path in encoded.rglob("x-*.npy"))
    for path in images.rglob("*"):
        if path.suffix in (".jpg", ".png"):
            assert path.read_bytes() in stored, path
    paint(tmp_path / "large", 12, side=200)
    words = ("--image-storage", "encoded", "--image-size", 32, "--encoded-size")
    prepare(tmp_path / "large", tmp_path / "small", *words, 48)
    data = Dataset.open(tmp_path / "small")
    assert sum(data.index.picture_bytes.values()) < sum(p.stat().st_size for p in (tmp_path / "large").rglob("*.*")) / 4
    split = data.split("train")
    for number in range(len(split.shards)):
        kept = split._ragged_shard("x", number)
        for row in range(split.shards[number].rows):
            assert min(Image.open(BytesIO(kept.row(row).tobytes())).size) == 48
    prepare(tmp_path / "large", tmp_path / "plain", "--image-size", 32)
    for one, other in zip(rows_of(data), rows_of(Dataset.open(tmp_path / "plain")), strict=True):
        assert abs(one.astype(int) - other.astype(int)).mean() < 4


def damaged(encoded: Path, copy: Path, row: int, content: bytes) -> Dataset:
    """Put other bytes in the place of a picture of the first shard of train, which is cut or filled up with zeros."""
    shutil.copytree(encoded, copy)
    split = Dataset.open(copy).split("train")
    offsets = np.load(copy / split.shards[0].files["x_offsets"].path)
    path = copy / split.shards[0].files["x"].path
    values = np.load(path)
    size = int(offsets[row + 1] - offsets[row])
    values[offsets[row] : offsets[row + 1]] = np.frombuffer(content[:size].ljust(size, b"\0"), np.uint8)
    np.save(path, values)
    return Dataset.open(copy)


def huge_png(side: int = 60_000) -> bytes:
    """Begin a PNG file that claims so many pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + header
        + struct.pack(">I", zlib.crc32(header))
        + b"\0\0\0\x08IDAT"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\0", r"is not an image \(JPEG, PNG\)"),
        (b"%!PS-Adobe-3.0\n", r"is not an image \(JPEG, PNG\)"),
        (huge_png(), r"has 60000 x 60000 pixels, more than max_megapixels 64 allows"),
    ],
)
def test_a_picture_that_cannot_be_decoded_is_named(
    folders: tuple[Path, Path, Path], tmp_path: Path, content: bytes, words: str
) -> None:
    data = damaged(folders[2], tmp_path / "copy", 3, content)
    with pytest.raises(
        Refusal, match=rf"train/x-00000.npy: its row 3, counted from 0, {words}.*Prepare the data again"
    ):
        data.split("train").take(np.array([7, 3]))


def test_the_same_batches_on_any_number_of_ranks_by_processes_and_after_a_restart(
    folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.training.torch.feed.HELD_SPLIT_BYTES", 0)
    monkeypatch.setattr(dataset_reader, "HELD_ARRAY_BYTES", 0)
    data = Dataset.open(folders[2])

    def epoch(rank: int, ranks: int, start: int, workers: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        loader = LoaderSettings(loader_workers=workers)
        changes = plan_augmentation(AugmentationSettings(), data.index, 5)
        reader = RowReader(data.split("train"), torch.device("cpu"), loader)
        feed = BatchFeed(reader, BatchPlan(8, ranks, 1), rank, LoopSettings(), loader, 5, changes)
        return list(feed.epoch(3, start))  # type: ignore[arg-type]

    alone = epoch(0, 1, 0, 0)
    assert len(alone) == 3
    for ranks, start, workers in ((2, 0, 1), (1, 1, 2)):
        parts = [epoch(rank, ranks, start, workers) for rank in range(ranks)]
        for number, batch in enumerate(alone[start:]):
            for of_whole, *of_ranks in zip(batch, *(part[number] for part in parts), strict=True):
                assert torch.equal(of_whole, torch.cat(of_ranks))


def test_a_large_jpeg_is_decoded_at_less_than_its_resolution(folders: tuple[Path, Path, Path], tmp_path: Path) -> None:
    array = replace(read_index(folders[2]).arrays["x"], shape=(30, 30, 3))
    paint(tmp_path, 1, side=320)
    path = tmp_path / "a" / "000.jpg"
    pixels = decode_picture(path.read_bytes(), array)
    expected = np.asarray(Image.open(path).resize((30, 30), box=(0, 4, 320, 324), reducing_gap=None)).astype(int)
    assert pixels.shape == (30, 30, 3)
    assert 0 < abs(pixels.astype(int) - expected).mean() < 3


def test_files_that_cannot_be_decoded_are_left_out_of_what_is_kept(tmp_path: Path) -> None:
    paths = paint(tmp_path / "images", 12)
    paths[0].write_bytes(paths[0].read_bytes()[:-400])
    paths[1].write_bytes(b"no image")
    Image.fromarray(np.zeros((40, 48), np.uint16)).save(paths[7])
    words = ("--image-storage", "encoded", "--image-size", 32, "--on-bad-file", "skip")
    text = prepare(tmp_path / "images", tmp_path / "out", *words)
    data = Dataset.open(tmp_path / "out")
    assert len(rows_of(data)) == 6
    assert sum(map(data.index.rows, SPLITS)) == 9
    for path, why in ((paths[0], "cannot be decoded"), (paths[1], "is not an image"), (paths[7], "more than 8 bits")):
        assert re.search(rf"left out: {path.parent.name}/{path.name} .*{why}", text)


def test_what_cannot_be_kept_encoded_is_refused(tmp_path: Path) -> None:
    words = ("--output-data", tmp_path / "out", "--image-storage", "encoded", "--encoded-size", 16)
    finished = run_component("prepare_data", *words, "--image-size", 32, folder=tmp_path)
    assert set(finished.codes) == {2}
    assert "image_storage encoded: digits has no file for each image." in finished.output
    assert "encoded_size 16: image_size is 32. Give an image_size of 16 or less." in finished.output

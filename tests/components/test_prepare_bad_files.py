"""prepare_data with files that cannot be used: named, and fatal or left out, the same on any number of ranks."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shared.data import Dataset
from tests.components.test_prepare_data import SHAPES, content, prepare

MODES = ("RGB", "L", "P", "RGBA", "CMYK", "1", "LA")


def paint(folder: Path, count: int, classes: int = 4) -> Path:
    """Images of several sizes and modes, of which two cannot be read."""
    random = np.random.default_rng(0)
    tiles = [Image.fromarray(random.integers(0, 256, (9, 9, 3), np.uint8)) for _ in range(31)]
    for number in range(count):
        side = (24, 32, 40)[number % 3]
        image = tiles[number % 31].resize((side + 8, side), Image.Resampling.BILINEAR)
        mode = MODES[number % 7]
        path = folder / f"class {number % classes}" / f"{number:05d}.{'tif' if mode == 'CMYK' else 'png'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.convert(mode).save(path)
    whole = (folder / "class 1" / "00001.png").read_bytes()
    (folder / "class 1" / "00001.png").write_bytes(whole[: len(whole) // 2])
    (folder / "class 3" / "00003.png").write_bytes(b"not an image")
    return folder


@pytest.mark.slow
def test_bad_files_are_left_out_alike_on_any_number_of_ranks(tmp_path: Path) -> None:
    images = paint(tmp_path / "images", 60)
    arguments = ("--dataset", "image_folder", "--data", images, "--image-size", 16, "--rows-per-shard", 7)
    contents = []
    for nodes, processes in SHAPES:
        finished, output = prepare(tmp_path, *arguments, "--on-bad-file", "skip", nodes=nodes, processes=processes)
        assert finished.ok, finished.output
        assert finished.output.count("left out: class 1/00001.png cannot be decoded") == 1
        assert finished.output.count("2 bad files were left out; skipped.csv") == 1
        contents.append(content(output))
    assert contents[0] == contents[1] == contents[2]
    with (output / "skipped.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == ["class 1/00001.png", "class 3/00003.png"]
    dataset = Dataset.open(output)
    dataset.verify()
    splits = [dataset.split(name) for name in ("train", "validation", "test")]
    assert sum(split.rows for split in splits) == 58
    rows = np.concatenate([split.take(np.arange(split.rows))["x"] for split in splits])
    assert rows.shape == (58, 16, 16, 3)
    train = splits[0].take(np.arange(splits[0].rows))["x"].reshape(-1, 3).astype(float)
    np.testing.assert_allclose(dataset.index.statistics.mean, train.mean(0), rtol=1e-12)

    for number in (1, 3):  # repaired, and prepared again into the same folder
        (images / f"class {number}" / f"{number:05d}.png").unlink()
    finished, output = prepare(tmp_path, *arguments)
    assert finished.ok, finished.output
    assert not (output / "skipped.csv").exists()
    assert not list(output.rglob("*.part"))


@pytest.mark.slow
def test_a_bad_file_ends_it_where_it_is_not_left_out(tmp_path: Path) -> None:
    images = paint(tmp_path / "images", 60)
    arguments = ("--dataset", "image_folder", "--data", images, "--image-size", 16, "--rows-per-shard", 7)
    finished, output = prepare(tmp_path, *arguments, nodes=2, processes=2)
    assert finished.codes == (2, 2, 2, 2)
    assert finished.output.count("error: ") == 1
    assert f"error: {images}/class " in finished.output
    assert "or leave out such files with on_bad_file skip." in finished.output
    assert "Traceback" not in finished.output
    assert not (output / "index.json").exists()
    assert not list(output.rglob("*.part"))


def test_a_shard_of_bad_files_only_is_no_shard(tmp_path: Path) -> None:
    images = paint(tmp_path / "images", 60)
    arguments = ("--dataset", "image_folder", "--data", images, "--image-size", 16, "--rows-per-shard", 1)
    finished, output = prepare(tmp_path, *arguments, "--on-bad-file", "skip", nodes=2)
    assert finished.ok, finished.output
    assert len(list(output.glob("*/x-*.npy"))) == 58
    Dataset.open(output).verify()


def test_a_class_must_not_be_lost(tmp_path: Path) -> None:
    images = paint(tmp_path / "images", 60)
    for path in (images / "class 2").iterdir():
        path.write_bytes(b"")
    arguments = ("--dataset", "image_folder", "--data", images, "--image-size", 16, "--on-bad-file", "skip")
    finished, _ = prepare(tmp_path, *arguments)
    assert finished.codes == (2,)
    assert "no file of class 2 that would go into train can be used" in finished.output


@pytest.mark.slow
def test_a_class_with_one_image(tmp_path: Path) -> None:
    images = paint(tmp_path / "images", 60)
    lonely = images / "alone" / "only.png"
    lonely.parent.mkdir()
    Image.new("RGB", (20, 20)).save(lonely)
    arguments = ("--dataset", "image_folder", "--data", images, "--image-size", 16, "--on-bad-file", "skip")
    finished, _ = prepare(tmp_path, *arguments, processes=2)
    assert finished.codes == (2, 2)
    assert finished.output.count(f"the class 'alone' has a single item ({lonely}): two are needed") == 1
    finished, _ = prepare(tmp_path, *arguments, "--test-fraction", 0, "--validation-fraction", 0)
    assert finished.ok, finished.output

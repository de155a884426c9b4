"""Sources: real files in, rows and labels out, and every unusable file named."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from shared.data.sources import SOURCES, BadFiles, ItemSource, SourceRequest
from shared.distributed import Refusal


def open_source(dataset: str, folder: Path | None = None, **given: Any) -> ItemSource:
    return SOURCES[dataset](SourceRequest(dataset, folder, **given))


def read(source: ItemSource, items: Sequence[int] | np.ndarray, bad: BadFiles | None = None) -> np.ndarray:
    return source.read(np.asarray(items), bad or BadFiles())


def paint(path: Path, size: tuple[int, int] = (6, 4), color: object = (200, 10, 30), mode: str = "RGB") -> Path:
    """Save an image of (width, height) in one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)  # type: ignore[arg-type]
    return path


def test_digits_are_those_of_scikit_learn() -> None:
    source, digits = open_source("digits"), load_digits()
    rows = read(source, np.arange(1797))
    assert (rows.shape, rows.dtype, rows.max()) == ((1797, 8, 8, 1), np.uint8, 16)
    np.testing.assert_array_equal(rows[..., 0], digits.images)
    np.testing.assert_array_equal(source.labels, digits.target)


def test_digits_refuse_what_they_would_ignore(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is built in and would ignore"):
        open_source("digits", tmp_path)
    with pytest.raises(Refusal, match="image_size 32 is for dataset image_folder;"):
        open_source("digits", image_size=32)


def test_an_image_folder(tmp_path: Path) -> None:
    paint(tmp_path / "dog" / "deep" / "2.png", color=(1, 2, 3))
    paint(tmp_path / "cat" / "1.PNG", color=(4, 5, 6))
    for ignored in ("cat/notes.txt", "cat/.hidden.png", ".git/x.png", "README.png"):
        (tmp_path / ignored).parent.mkdir(exist_ok=True)
        (tmp_path / ignored).touch()
    source = open_source("image_folder", tmp_path)
    assert source.classes == ("cat", "dog")
    assert source.array.shape == (4, 6, 3)
    rows = read(source, np.array([1, 0]))
    assert rows[0, 0, 0].tolist() == [1, 2, 3]
    assert rows[1, 3, 5].tolist() == [4, 5, 6]


def test_images_become_grey_or_coloured(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "palette.png", color=7, mode="P")
    paint(tmp_path / "a" / "see-through.png", color=(9, 9, 9, 100), mode="RGBA")
    assert read(open_source("image_folder", tmp_path, color="grayscale"), np.arange(2)).shape == (2, 4, 6, 1)
    assert read(open_source("image_folder", tmp_path), np.arange(2)).shape == (2, 4, 6, 3)


def test_images_of_several_sizes_need_image_size(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", size=(6, 4))
    paint(tmp_path / "a" / "2.png", size=(8, 8))
    with pytest.raises(Refusal, match=r"the first is 6x4, .*2.png is 8x8. Give image_size"):
        read(open_source("image_folder", tmp_path), np.arange(2))
    assert read(open_source("image_folder", tmp_path, image_size=5), np.arange(2)).shape == (2, 5, 5, 3)


def test_resizing_crops_around_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 250
    (tmp_path / "a").mkdir()
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    assert (read(open_source("image_folder", tmp_path, image_size=10), np.array([0])) == 250).all()


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_the_orientation_of_a_photograph_is_applied(tmp_path: Path, suffix: str) -> None:
    image = Image.new("RGB", (8, 4))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held upright
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / f"upright.{suffix}", exif=exif)
    source = open_source("image_folder", tmp_path)
    assert source.array.shape == (8, 4, 3)
    assert read(source, np.array([0])).shape == (1, 8, 4, 3)


def test_damaged_images_are_named(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png")
    good = paint(tmp_path / "a" / "2.png", size=(64, 64)).read_bytes()
    for content in (b"not an image", good[: len(good) // 2], b""):
        (tmp_path / "a" / "2.png").write_bytes(content)
        with pytest.raises(Refusal, match=r"a/2.png (is not an image|cannot be decoded|is truncated)"):
            read(open_source("image_folder", tmp_path, image_size=4), np.arange(2))


def test_images_of_16_bits_are_refused(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "deep.png", color=40_000, mode="I;16")
    with pytest.raises(Refusal, match=r"deep.png has more than 8 bits"):
        read(open_source("image_folder", tmp_path), np.array([0]))


def bomb(side: int) -> bytes:
    """A PNG of a few kilobytes that unpacks to side * side pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", side, side, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((side // 8 + 1) * side), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_large_images_are_not_decoded(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").write_bytes(bomb(20_000))
    assert (tmp_path / "a" / "2.png").stat().st_size < 60_000
    source = open_source("image_folder", tmp_path, image_size=4)
    with pytest.raises(Refusal, match=r"2.png has 20000 x 20000 pixels, more than max_megapixels 64 allows"):
        read(source, [0, 1])
    paint(tmp_path / "a" / "3.png", size=(1001, 1000))
    with pytest.raises(Refusal, match="more than max_megapixels 1 allows"):
        read(open_source("image_folder", tmp_path, image_size=4, max_megapixels=1), [2])


def test_only_formats_that_we_know_are_decoded(tmp_path: Path) -> None:
    """Pillow goes by content: a PostScript file by another name would be given to Ghostscript."""
    paint(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(Refusal, match=r"2.png is not an image \(BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP\)"):
        read(open_source("image_folder", tmp_path), [0, 1])
    os.mkfifo(tmp_path / "a" / "3.png")  # opening it would wait for ever
    assert len(open_source("image_folder", tmp_path).labels) == 2


@pytest.mark.parametrize("suffix", ["bmp", "gif", "jpg", "pgm", "png", "ppm", "tif", "webp"])
def test_every_suffix_is_a_format_that_is_read(tmp_path: Path, suffix: str) -> None:
    paint(tmp_path / "a" / f"1.{suffix}", color=(90, 90, 90), mode="RGB")
    rows = read(open_source("image_folder", tmp_path), [0])
    assert rows.shape == (1, 4, 6, 3)
    assert np.abs(rows.astype(int) - 90).max() < 4


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="give their folder as the input data"):
        open_source("image_folder")
    with pytest.raises(Refusal, match="is not a folder"):
        open_source("image_folder", tmp_path / "nowhere")
    with pytest.raises(Refusal, match=r"has no folders.*It holds nothing"):
        open_source("image_folder", tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(Refusal, match="holds the splits train, not classes"):
        open_source("image_folder", tmp_path)
    paint(tmp_path / "cat" / "1.png")
    with pytest.raises(Refusal, match=r"train holds no image .*but nothing; remove the folder, or fill it"):
        open_source("image_folder", tmp_path)


@pytest.mark.parametrize(
    ("x", "shape"), [((4, 3), (3,)), ((4, 5, 6), (5, 6, 1)), ((4, 5, 6, 3), (5, 6, 3)), ((4, 2, 5, 6, 3), (2, 5, 6, 3))]
)
def test_npy_shapes(tmp_path: Path, x: tuple[int, ...], shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "x.npy", np.arange(np.prod(x), dtype=">f4").reshape(x))
    np.save(tmp_path / "y.npy", np.array(["b", "a", "b", "c"]))
    source = open_source("npy", tmp_path)
    assert (source.array.shape, source.array.dtype, source.classes) == (shape, "float32", ("a", "b", "c"))
    assert source.labels[:].tolist() == [1, 0, 1, 2]
    assert read(source, np.array([2, 0])).reshape(2, -1)[:, 0].tolist() == [2 * np.prod(shape), 0]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "do not hold the same rows"),
        (np.zeros(3), np.zeros(3, int), "do not hold the same rows"),
        (np.zeros((0, 2)), np.zeros(0, int), "do not hold the same rows"),
        (np.zeros((3, 2)), np.full(3, 0.5), "holds float64"),
        (np.zeros((3, 2)), np.zeros((3, 2)), "Of one column for each class"),
        (np.zeros((3, 2)), np.zeros((3, 1), int), "one whole number or text for each row"),
        (np.zeros((3, 2), complex), np.zeros(3, int), "numbers are needed"),
    ],
)
def test_npy_that_does_not_fit_is_refused(tmp_path: Path, x: np.ndarray, y: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(Refusal, match=message):
        open_source("npy", tmp_path)


def test_npy_holds_the_targets_of_a_regression(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "y.npy", np.array([1.5, 2, -3], "float32"))
    source = open_source("npy", tmp_path, task="regression")
    assert (source.labels[:].tolist(), source.classes, source.labels[:].dtype) == ([1.5, 2, -3], (), np.float64)
    with pytest.raises(Refusal, match="choose task regression"):
        open_source("npy", tmp_path)
    np.save(tmp_path / "y.npy", np.array([1.5, np.inf, -3]))
    with pytest.raises(Refusal, match="row 1 is not a finite number"):
        open_source("npy", tmp_path, task="regression")


def test_npy_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"x.npy is missing"):
        open_source("npy", tmp_path)
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(Refusal, match=r"x.npy cannot be read"):
        open_source("npy", tmp_path)
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 2)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(Refusal, match=r"x.npy is an archive of arrays"):
        open_source("npy", tmp_path)


def test_rows_that_are_not_finite_are_named(tmp_path: Path) -> None:
    x = np.zeros((5, 2), "float32")
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.zeros(5, int))
    with pytest.raises(Refusal, match="row 3 holds a value that is not a finite number"):
        read(open_source("npy", tmp_path), np.array([4, 3, 0]))

"""Sources: real files in, rows and labels out, and every unusable file named."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from shared.data.sources import SOURCES, Request, Source
from shared.distributed import Refusal


def open_source(dataset: str, folder: Path | None = None, image_size: int | None = None, color: str = "rgb") -> Source:
    return SOURCES[dataset](Request(dataset, folder, image_size, color))


def paint(path: Path, size: tuple[int, int] = (6, 4), color: object = (200, 10, 30), mode: str = "RGB") -> Path:
    """Save an image of (width, height) in one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_source_survives_the_way_to_a_worker(name: str, tmp_path: Path) -> None:
    paint(tmp_path / "cat" / "1.png")
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "y.npy", np.array([0, 1]))
    source = open_source(name, None if name == "digits" else tmp_path)
    again = pickle.loads(pickle.dumps(source))  # noqa: S301  # as multiprocessing does
    everything = np.arange(len(source.labels))
    np.testing.assert_array_equal(again.read(everything), source.read(everything))
    assert source.read(everything).shape == (len(everything), *source.array.shape)
    assert source.read(everything).dtype.name == source.array.dtype
    assert set(source.labels) == set(range(len(source.classes)))


def test_digits_are_those_of_scikit_learn() -> None:
    source, digits = open_source("digits"), load_digits()
    rows = source.read(np.arange(1797))
    assert (rows.shape, rows.dtype, rows.max()) == ((1797, 8, 8, 1), np.uint8, 16)
    np.testing.assert_array_equal(rows[..., 0], digits.images)
    np.testing.assert_array_equal(source.labels, digits.target)


def test_digits_refuse_what_they_would_ignore(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is built in and would ignore"):
        open_source("digits", tmp_path)
    with pytest.raises(Refusal, match="image_size 32 is for dataset image_folder"):
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
    rows = source.read(np.array([1, 0]))
    assert rows[0, 0, 0].tolist() == [1, 2, 3]
    assert rows[1, 3, 5].tolist() == [4, 5, 6]


def test_images_become_grey_or_coloured(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "palette.png", color=7, mode="P")
    paint(tmp_path / "a" / "see-through.png", color=(9, 9, 9, 100), mode="RGBA")
    assert open_source("image_folder", tmp_path, color="grayscale").read(np.arange(2)).shape == (2, 4, 6, 1)
    assert open_source("image_folder", tmp_path).read(np.arange(2)).shape == (2, 4, 6, 3)


def test_images_of_several_sizes_need_image_size(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png", size=(6, 4))
    paint(tmp_path / "a" / "2.png", size=(8, 8))
    with pytest.raises(Refusal, match=r"1.png is 6x4, .*2.png is 8x8. Give image_size"):
        open_source("image_folder", tmp_path).read(np.arange(2))
    assert open_source("image_folder", tmp_path, image_size=5).read(np.arange(2)).shape == (2, 5, 5, 3)


def test_resizing_crops_around_the_centre(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 250
    (tmp_path / "a").mkdir()
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    assert (open_source("image_folder", tmp_path, image_size=10).read(np.array([0])) == 250).all()


def test_the_orientation_of_a_photograph_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4))
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was held upright
    (tmp_path / "a").mkdir()
    image.save(tmp_path / "a" / "upright.jpg", exif=exif)
    source = open_source("image_folder", tmp_path)
    assert source.array.shape == (8, 4, 3)
    assert source.read(np.array([0])).shape == (1, 8, 4, 3)


def test_damaged_images_are_named(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "1.png")
    good = paint(tmp_path / "a" / "2.png", size=(64, 64)).read_bytes()
    for content in (b"not an image", good[: len(good) // 2], b""):
        (tmp_path / "a" / "2.png").write_bytes(content)
        with pytest.raises(Refusal, match=r"2.png is not an image that can be read"):
            open_source("image_folder", tmp_path, image_size=4).read(np.arange(2))


def test_images_of_16_bits_are_refused(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "deep.png", color=40_000, mode="I;16")
    with pytest.raises(Refusal, match=r"deep.png has more than 8 bits"):
        open_source("image_folder", tmp_path).read(np.array([0]))


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="give their folder as the input data"):
        open_source("image_folder")
    with pytest.raises(Refusal, match="is not a folder"):
        open_source("image_folder", tmp_path / "nowhere")
    with pytest.raises(Refusal, match="has no folders"):
        open_source("image_folder", tmp_path)
    (tmp_path / "train").mkdir()
    with pytest.raises(Refusal, match="holds the splits train, not classes"):
        open_source("image_folder", tmp_path)
    paint(tmp_path / "cat" / "1.png")
    with pytest.raises(Refusal, match="train holds no image"):
        open_source("image_folder", tmp_path)


@pytest.mark.parametrize(
    ("x", "shape"), [((4, 3), (3,)), ((4, 5, 6), (5, 6, 1)), ((4, 5, 6, 3), (5, 6, 3)), ((4, 2, 5, 6, 3), (2, 5, 6, 3))]
)
def test_npy_shapes(tmp_path: Path, x: tuple[int, ...], shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "x.npy", np.arange(np.prod(x), dtype=">f4").reshape(x))
    np.save(tmp_path / "y.npy", np.array(["b", "a", "b", "c"]))
    source = open_source("npy", tmp_path)
    assert (source.array.shape, source.array.dtype, source.classes) == (shape, "float32", ("a", "b", "c"))
    assert source.labels.tolist() == [1, 0, 1, 2]
    assert source.read(np.array([2, 0])).reshape(2, -1)[:, 0].tolist() == [2 * np.prod(shape), 0]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "do not hold the same rows"),
        (np.zeros(3), np.zeros(3, int), "do not hold the same rows"),
        (np.zeros((0, 2)), np.zeros(0, int), "do not hold the same rows"),
        (np.zeros((3, 2)), np.zeros(3), "holds float64"),
        (np.zeros((3, 2)), np.zeros((3, 1), int), "one whole number or text for each row"),
        (np.zeros((3, 2), complex), np.zeros(3, int), "numbers are needed"),
    ],
)
def test_npy_that_does_not_fit_is_refused(tmp_path: Path, x: np.ndarray, y: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(Refusal, match=message):
        open_source("npy", tmp_path)


def test_npy_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"x.npy is missing"):
        open_source("npy", tmp_path)
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(Refusal, match=r"x.npy cannot be read"):
        open_source("npy", tmp_path)


def test_rows_that_are_not_finite_are_named(tmp_path: Path) -> None:
    x = np.zeros((5, 2), "float32")
    x[3, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.zeros(5, int))
    with pytest.raises(Refusal, match="row 3 holds a value that is not a finite number"):
        open_source("npy", tmp_path).read(np.array([4, 3, 0]))

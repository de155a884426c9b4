"""A folder with one folder of images for each class, as torchvision's ImageFolder and Keras read it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.index import Array
from shared.data.order import Rows
from shared.data.sources.source import Request
from shared.distributed import Refusal

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing"})
MODES = {"grayscale": "L", "rgb": "RGB"}


@dataclass(frozen=True)
class ImageFolder:
    """Images below `<folder>/<class>/`, at any depth; the classes are the folders' names in ascending order.

    Attributes:
        files: paths relative to the folder, one for each item.
        resize: whether images are brought to the array's size: scaled, then cropped around the centre.
    """

    folder: Path
    files: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    array: Array
    color: str
    resize: bool
    decodes: bool = True

    @classmethod
    def open(cls, request: Request) -> ImageFolder:
        """List the files; of the images only the first is opened, to learn the size where none was asked for.

        Raises:
            Refusal: if the folder does not hold one folder of images for each class.
        """
        folder = request.needed_folder()
        classes = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."))
        _check_classes(folder, classes)
        found = [_images(folder, name) for name in classes]
        for name, images in zip(classes, found, strict=True):
            if not images:
                raise Refusal(f"{folder / name} holds no image ({', '.join(SUFFIXES)}); remove the folder or fill it.")
        files = tuple(file for names in found for file in names)
        labels = np.repeat(np.arange(len(classes)), [len(names) for names in found])
        size = (request.image_size,) * 2 if request.image_size else _size(folder / files[0])
        array = Array((*size, 3 if request.color == "rgb" else 1), "uint8")
        return cls(folder, files, labels, classes, array, request.color, resize=request.image_size is not None)

    def read(self, items: Rows) -> npt.NDArray[Any]:
        """Decode images by number.

        Raises:
            Refusal: if a file is damaged, has more than 8 bits, or another size while no image_size was given.
        """
        images = np.empty((len(items), *self.array.shape), np.uint8)
        for row, item in enumerate(items):
            images[row] = self._decode(self.files[item])
        return images

    def _decode(self, file: str) -> npt.NDArray[np.uint8]:
        from PIL import Image, ImageOps

        height, width = self.array.shape[:2]
        try:
            with Image.open(self.folder / file) as opened:
                image = ImageOps.exif_transpose(opened)
                if image.mode[0] in "IF":
                    raise Refusal(
                        f"{self.folder / file} has more than 8 bits for each channel; convert it, or use npy."
                    )
                image = image.convert(MODES[self.color])
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise Refusal(f"{self.folder / file} is not an image that can be read: {error}") from error
        if self.resize:
            image = ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)
        elif image.size != (width, height):
            raise Refusal(
                f"images differ in size: {self.folder / self.files[0]} is {width}x{height}, {self.folder / file} is "
                f"{image.width}x{image.height}. Give image_size, the side in pixels to which all are brought."
            )
        return np.asarray(image, np.uint8).reshape(self.array.shape)


def _check_classes(folder: Path, classes: tuple[str, ...]) -> None:
    if not classes:
        raise Refusal(f"{folder} has no folders: dataset image_folder reads one folder of images for each class.")
    if SPLIT_NAMES.issuperset(name.lower() for name in classes):
        raise Refusal(
            f"{folder} holds the splits {', '.join(classes)}, not classes: give the folder that has one folder of "
            "images for each class; prepare_data makes the splits itself."
        )


def _images(folder: Path, name: str) -> list[str]:
    files: list[str] = []
    for root, folders, names in os.walk(folder / name):
        folders[:] = [inner for inner in folders if inner[0] != "."]
        place = os.path.relpath(root, folder)
        files += [f"{place}/{file}" for file in names if file.lower().endswith(SUFFIXES) and file[0] != "."]
    return sorted(files)


def _size(file: Path) -> tuple[int, int]:
    """Height and width of an image, from its header."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            width, height = ImageOps.exif_transpose(image).size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Refusal(f"{file} is not an image that can be read: {error}") from error
    return height, width

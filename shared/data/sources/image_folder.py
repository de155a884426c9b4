"""A folder with one folder of images for each class, as torchvision's ImageFolder and Keras read it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.pictures import (
    UnreadableImageError,
    decode_image,
    decode_picture,
    image_mode,
    keep_image,
    read_image_size,
)
from shared.data.formats.file_format import find_file_fault, find_name_fault, show_name
from shared.data.write.request import BadFiles, EncodedSource, ItemSource, SourceRequest, is_folder, list_names
from shared.distributed import Refusal
from shared.storage import list_entries, retry_transient

_SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_SIZED_FILES = 1000
"""Files that are looked at to learn how large they are."""
_SPLIT_NAMES = frozenset({"train", "training", "val", "valid", "validation", "dev", "test", "testing"})


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ItemSource):
    """Images below `<folder>/<class>/`, at any depth; the classes are the folders' names in ascending order.

    With `resize` images are brought to the array's size: scaled, then cropped around the centre. One of more than
    `most_pixels` is not decoded.
    """

    folder: Path
    files: tuple[str, ...]
    resize: bool
    most_pixels: int
    decodes: bool = True

    @classmethod
    def open(cls, request: SourceRequest) -> ImageFolder:
        """List the files; images are only opened to learn the size where none was asked for.

        Raises:
            Refusal: if the folder does not hold one folder of images for each class.
        """
        request.refuse_regression()
        folder = request.needed_folder()
        classes = tuple(
            sorted(entry.name for entry in list_entries(folder) if is_folder(entry) and entry.name[0] != ".")
        )
        _check_classes(folder, classes)
        found = [sorted(_images(folder, name)) for name in classes]
        for name, images in zip(classes, found, strict=True):
            if not images:
                raise Refusal(_without_images(folder / name))
        files = tuple(file for inside in found for file in inside)
        _note_others(request, classes)
        most_pixels = request.max_megapixels * 10**6
        size = (request.image_size,) * 2 if request.image_size else _first_size(request, files, most_pixels)
        shape = (*size, 1 if request.color == "grayscale" else 3)
        common: dict[str, Any] = {
            "folder": folder,
            "files": files,
            "labels": np.repeat(np.arange(len(classes)), [len(inside) for inside in found]),
            "classes": classes,
            "resize": request.image_size is not None,
            "most_pixels": most_pixels,
        }
        if not request.keeps_encoded:
            return cls(array=Array(shape, "uint8"), **common)
        return EncodedImageFolder(
            array=Array(shape, "uint8", most_pixels=most_pixels),
            file_bytes=_mean_size(folder, files, request.encoded_size),
            shorter_side=request.encoded_size,
            **common,
        )

    def where(self, item: int) -> str:
        """Path of an image."""
        return str(self.folder / self.files[item])

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Decode images by number; those that cannot be are reported.

        Raises:
            Refusal: if sizes differ while no image_size was given.
        """
        images = np.empty((len(items), *self.array.shape), np.uint8)
        good = 0
        for item in items.tolist():
            try:
                images[good] = self._decode(self.files[item])
                good += 1
            except UnreadableImageError as error:
                bad.report(self.files[item], str(error), item)
        return images[:good]

    def _decode(self, file: str) -> npt.NDArray[np.uint8]:
        height, width, _ = self.array.shape
        size = (width, height) if self.resize else None
        pixels = decode_image(_checked(self.folder / file), image_mode(self.array), size, self.most_pixels)
        self._check_size(file, pixels)
        return pixels

    def _check_size(self, file: str, pixels: npt.NDArray[np.uint8]) -> None:
        if pixels.shape != self.array.shape:
            raise Refusal(
                f"images differ in size: the first is {self.array.shape[1]}x{self.array.shape[0]}, "
                f"{self.folder / file} is {pixels.shape[1]}x{pixels.shape[0]}. Give image_size, the side in pixels to "
                "which all are brought."
            )


@dataclass(frozen=True, kw_only=True)
class EncodedImageFolder(ImageFolder, EncodedSource):
    """Images that are kept as the bytes of JPEG and PNG files.

    One whose shorter side is longer than `shorter_side` is reduced to that; None leaves all as they are.
    """

    shorter_side: int | None

    def read_encoded(self, items: RowNumbers, bad: BadFiles) -> tuple[list[bytes], npt.NDArray[Any]]:
        """Bytes by number, and the pixels that a training will see; what cannot be decoded is reported.

        Raises:
            Refusal: if sizes differ while no image_size was given.
        """
        contents: list[bytes] = []
        images = np.empty((len(items), *self.array.shape), np.uint8)
        for item in items.tolist():
            try:
                content, pixels = self._kept(self.files[item])
                images[len(contents)] = pixels
                contents.append(content)
            except UnreadableImageError as error:
                bad.report(self.files[item], str(error), item)
        return contents, images[: len(contents)]

    def _kept(self, file: str) -> tuple[bytes, npt.NDArray[np.uint8]]:
        path, mode = _checked(self.folder / file), image_mode(self.array)
        content = keep_image(path, mode, self.shorter_side, self.most_pixels)
        if not self.resize:
            self._check_size(file, decode_image(path, mode, None, self.most_pixels))
        return content, decode_picture(content, self.array)


def _checked(path: Path) -> Path:
    """Give a path that can be read as a file.

    Raises:
        UnreadableImageError: if it cannot.
    """
    if fault := find_file_fault(path):
        raise UnreadableImageError(fault)
    return path


def _mean_size(folder: Path, files: tuple[str, ...], shorter_side: int | None) -> int:
    """About how many bytes are kept of a file, by some of them: half a byte for each pixel of one that is reduced."""
    sizes = []
    for file in files[:: -(-len(files) // _SIZED_FILES)]:
        with suppress(OSError):  # it is reported when it is read
            sizes.append(retry_transient((folder / file).stat).st_size)
    mean = int(np.mean(sizes)) if sizes else 0
    return max(1, min(mean, shorter_side**2 // 2) if shorter_side else mean)


def _check_classes(folder: Path, classes: tuple[str, ...]) -> None:
    for name in classes:
        if fault := find_name_fault(Path(name)):
            raise Refusal(f"{show_name(str(folder / name))} {fault}. The folder's name is that of a class.")
    if not classes:
        raise Refusal(
            f"{folder} has no folders: dataset image_folder reads one folder of images for each class. "
            f"It holds {list_names(sorted(entry.name for entry in list_entries(folder)))}."
        )
    if _SPLIT_NAMES.issuperset(name.lower() for name in classes):
        raise Refusal(
            f"{folder} holds the splits {', '.join(classes)}, not classes: give the folder that has one folder of "
            "images for each class; prepare_data makes the splits itself."
        )


def _images(folder: Path, place: str) -> Iterator[str]:
    """Paths of the images below a folder; links to folders are not followed, because they may lead in circles."""
    for entry in list_entries(folder / place):
        if entry.name[0] == ".":
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _images(folder, f"{place}/{entry.name}")
        # What a link leads to is looked at when it is opened: it may be nothing, itself, or a pipe.
        elif entry.name.lower().endswith(_SUFFIXES) and (entry.is_symlink() or entry.is_file()):
            yield f"{place}/{entry.name}"


def _note_others(request: SourceRequest, classes: tuple[str, ...]) -> None:
    """Say how many files in the classes' folders are left out, by their endings."""
    names = (name for one in classes for _, _, inside in os.walk(request.needed_folder() / one) for name in inside)
    others = Counter(Path(name).suffix or name for name in names if not name.lower().endswith(_SUFFIXES))
    if others:
        counted = [f"{ending} ({count})" for ending, count in others.most_common()]
        request.note(f"files that are left out, since they do not end as images do: {list_names(counted)}")


def _without_images(folder: Path) -> str:
    there = sorted({Path(name).suffix or name for _, _, inside in os.walk(folder) for name in inside})
    return (
        f"{folder} holds no image ({', '.join(_SUFFIXES)}), but {list_names(there)}; remove the folder, or fill it "
        "with images in one of these formats."
    )


def _first_size(request: SourceRequest, files: tuple[str, ...], most_pixels: int) -> tuple[int, int]:
    """Height and width of the first image whose header can be read."""
    folder, trial = request.needed_folder(), BadFiles(request.bad.skip, request.needed_folder())
    for file in files:
        try:
            return read_image_size(_checked(folder / file), most_pixels)
        except UnreadableImageError as error:
            trial.report(file, str(error))  # left out when it is read, if it is to be left out
    raise Refusal(f"{folder} holds {len(files)} images, of which none can be read: {trial.found[0].reason}.")

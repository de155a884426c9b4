"""One image file to pixels: only formats that we know, only as large as was allowed, and every fault named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.data.formats.file_fault import find_file_fault

if TYPE_CHECKING:
    from PIL import Image

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What may be decoded, whatever the file's name says: Pillow would run Ghostscript for a PostScript file."""


class UnreadableImageError(Exception):  # what it says about a file
    """Why a file gives no image; the text goes on after the file's path."""


def decode_image(file: Path, mode: str, size: tuple[int, int] | None, most_pixels: int) -> npt.NDArray[np.uint8]:
    """Pixels of an image file, upright: (height, width, channels).

    Args:
        file: of one of ``_FORMATS``; of several frames the first is taken.
        mode: ``L`` or ``RGB``.
        size: (width, height) to which it is brought: scaled, then cropped around the centre; None leaves its size.
        most_pixels: larger ones are not decoded.

    Raises:
        UnreadableImageError: if it is no image, damaged, larger than allowed, or has more than 8 bits for each channel.
    """
    from PIL import ImageOps

    try:
        with _open(file, most_pixels) as image:
            _refuse_deep(image)
            ImageOps.exif_transpose(image, in_place=True)
            return image_to_array(image, mode, size)
    except UnreadableImageError:
        raise
    # Decoders raise what they like on damaged files (seen: struct.error, KeyError, IndexError, zlib.error).
    except Exception as error:
        raise UnreadableImageError(f"cannot be decoded: {_reason(error, file)}") from error


def _refuse_deep(image: Image.Image) -> None:
    if image.mode[0] in "IF":
        raise UnreadableImageError("has more than 8 bits for each channel; convert it, or use dataset npy")


def image_to_array(image: Image.Image, mode: str, size: tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    """Pixels of an image in a mode (``L`` or ``RGB``) and, if given, a size; see ``decode_image``."""
    from PIL import Image, ImageOps

    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow's own way there
    if image.mode != mode:
        image = image.convert(mode)
    if size is not None and image.size != size:
        image = ImageOps.fit(image, size, Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(image.height, image.width, -1)


def read_image_size(file: Path, most_pixels: int) -> tuple[int, int]:
    """Height and width of an upright image, from its header.

    Raises:
        UnreadableImageError: see ``decode_image``.
    """
    try:
        with _open(file, most_pixels) as image:
            sideways = image.getexif().get(0x0112, 1) >= 5  # the orientation
            return image.size if sideways else image.size[::-1]
    except UnreadableImageError:
        raise
    except Exception as error:
        raise UnreadableImageError(f"cannot be decoded: {_reason(error, file)}") from error


def _open(file: Path, most_pixels: int) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    if fault := find_file_fault(file):
        raise UnreadableImageError(fault)
    Image.MAX_IMAGE_PIXELS = None  # our limit is checked at the same place: after the header, before the pixels
    try:
        image = Image.open(file, formats=_FORMATS)
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"is not an image ({', '.join(_FORMATS)})") from error
    if image.width * image.height > most_pixels:
        image.close()
        raise UnreadableImageError(
            f"has {image.width} x {image.height} pixels, more than max_megapixels {most_pixels / 10**6:g} allows"
        )
    return image


def _reason(error: Exception, file: Path) -> Any:
    """What an exception says, without the path, which stands before it."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.replace(str(file), file.name) or type(error).__name__

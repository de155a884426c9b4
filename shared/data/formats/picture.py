"""One image file to pixels: only formats that we know, only as large as was allowed, and every fault named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shared.data.formats.file_format import find_file_fault

if TYPE_CHECKING:
    from PIL import Image

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What may be decoded, whatever the file's name says: Pillow would run Ghostscript for a PostScript file."""


class UnreadableImageError(Exception):  # what it says about a file
    """Why a file gives no image; the text goes on after the file's path."""


def decode_image(file: Path, mode: str, size: tuple[int, int] | None, most_pixels: int) -> npt.NDArray[np.uint8]:
    """Pixels of an image file, upright: (height, width, channels).

    The file is of one of ``_FORMATS``, and of several frames the first is taken; the mode is ``L`` or ``RGB``. It is
    brought to a size (width, height), if one is given: scaled, then cropped around the centre.

    Raises:
        UnreadableImageError: if it is no image, damaged, larger than allowed, or has more than 8 bits for each channel.
    """
    from PIL import ImageOps

    with _opened(file, most_pixels) as image:
        if image.mode[0] in "IF":
            raise UnreadableImageError("has more than 8 bits for each channel; convert it, or use dataset npy")
        ImageOps.exif_transpose(image, in_place=True)
        return image_to_array(image, mode, size)


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
    with _opened(file, most_pixels) as image:
        sideways = image.getexif().get(0x0112, 1) >= 5  # the orientation
        return image.size if sideways else image.size[::-1]


@contextmanager
def _opened(file: Path, most_pixels: int) -> Iterator[Image.Image]:
    """An image, closed at the end; what its decoder raises meanwhile comes as UnreadableImageError."""
    from PIL import Image, UnidentifiedImageError

    if fault := find_file_fault(file):
        raise UnreadableImageError(fault)
    Image.MAX_IMAGE_PIXELS = None  # our limit is checked at the same place: after the header, before the pixels
    try:
        with Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > most_pixels:
                raise UnreadableImageError(  # noqa: TRY301  # passed on below
                    f"has {image.width} x {image.height} pixels, "
                    f"more than max_megapixels {most_pixels / 10**6:g} allows"
                )
            yield image
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"is not an image ({', '.join(_FORMATS)})") from error
    # Decoders raise what they like on damaged files (seen: struct.error, KeyError, IndexError, zlib.error).
    except Exception as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = text.replace(str(file), file.name)  # the path stands before it
        raise UnreadableImageError(f"cannot be decoded: {text or type(error).__name__}") from error

"""Pictures from the bytes of their files: of known formats, only as large as was allowed, and every fault named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.ragged import Ragged
from shared.distributed import Refusal
from shared.storage import open_file, read_bytes, retry_transient

if TYPE_CHECKING:
    from PIL import Image

KEPT_FORMATS = ("JPEG", "PNG")
"""What a dataset keeps encoded."""

FILE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What may be decoded, whatever the file's name says: Pillow would run Ghostscript for a PostScript file."""

_JPEG_NAMES = ("JPEG", "MPO")
"""What Pillow calls a JPEG file, the second if cameras put further pictures behind the first."""

_JPEG_QUALITY = 90
_MOST_BYTES_PER_PIXEL = 8
"""Of a file that is kept as it is: twice what plain pixels with transparency take."""


class UnreadableImageError(Exception):  # what it says about a file
    """Why a file gives no image; the text goes on after the file's path."""


@contextmanager
def opened_image(source: Path | BytesIO, formats: tuple[str, ...], most_pixels: int) -> Iterator[Image.Image]:
    """Open an image, until the end; what its decoder raises meanwhile comes as UnreadableImageError."""
    from PIL import Image, UnidentifiedImageError

    Image.MAX_IMAGE_PIXELS = None  # our limit is checked at the same place: after the header, before the pixels
    try:
        with (
            open_file(source) if isinstance(source, Path) else nullcontext(source) as content,
            Image.open(content, formats=formats) as image,
        ):
            if image.width * image.height > most_pixels:
                raise UnreadableImageError(  # noqa: TRY301  # passed on below
                    f"has {image.width} x {image.height} pixels, "
                    f"more than max_megapixels {most_pixels / 10**6:g} allows"
                )
            yield image
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImageError(f"is not an image ({', '.join(formats)})") from error
    # Decoders raise what they like on damaged files (seen: struct.error, KeyError, IndexError, zlib.error).
    except Exception as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(source, Path):
            text = text.replace(str(source), source.name)  # the path stands before it
        raise UnreadableImageError(f"cannot be decoded: {text or type(error).__name__}") from error


def image_to_array(image: Image.Image, mode: str, size: tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    """Pixels of an image in a mode (``L`` or ``RGB``): (height, width, channels).

    It is brought to a size (width, height), if one is given: scaled, then cropped around the centre.
    """
    from PIL import Image, ImageOps

    image = convert_image(image, mode)
    if size is not None and image.size != size:
        image = ImageOps.fit(image, size, Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(image.height, image.width, -1)


def convert_image(image: Image.Image, mode: str) -> Image.Image:
    """Bring an image to a mode (``L`` or ``RGB``)."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow's own way there
    return image if image.mode == mode else image.convert(mode)


def image_mode(array: Array) -> str:
    """Pillow's name for pictures with the channels of an array."""
    return "RGB" if array.shape[-1] == 3 else "L"


def decode_image(file: Path, mode: str, size: tuple[int, int] | None, most_pixels: int) -> npt.NDArray[np.uint8]:
    """Pixels of an image file, upright: (height, width, channels).

    The file is of one of ``FILE_FORMATS``, and of several frames the first is taken; the mode is ``L`` or ``RGB``. It
    is brought to a size (width, height), if one is given: scaled, then cropped around the centre.

    Raises:
        UnreadableImageError: if it is no image, damaged, larger than allowed, or has more than 8 bits for each channel.
    """
    from PIL import ImageOps

    with opened_image(file, FILE_FORMATS, most_pixels) as image:
        _refuse_deep(image)
        ImageOps.exif_transpose(image, in_place=True)
        return image_to_array(image, mode, size)


def keep_image(file: Path, mode: str, shorter_side: int | None, most_pixels: int) -> bytes:
    """Bytes of a JPEG or PNG file with the picture of an image file: those of the file itself where that is one.

    One whose shorter side is longer than `shorter_side` is scaled down to it and encoded anew; what is no JPEG becomes
    a PNG. Whether a file that is kept can be decoded is seen when it is.

    Raises:
        UnreadableImageError: see ``decode_image``.
    """
    from PIL import Image, ImageOps

    with opened_image(file, FILE_FORMATS, most_pixels) as image:
        _refuse_deep(image)
        is_jpeg, whole = image.format in _JPEG_NAMES, shorter_side is None or min(image.size) <= shorter_side
        if whole and (is_jpeg or image.format in KEPT_FORMATS):
            size = retry_transient(file.stat).st_size
            if size > _MOST_BYTES_PER_PIXEL * most_pixels:
                raise UnreadableImageError(f"has {size:,} bytes, which max_megapixels does not allow")
            return read_bytes(file)
        if shorter_side is not None:
            image.draft(image.mode, (shorter_side, shorter_side))
        ImageOps.exif_transpose(image, in_place=True)
        small = convert_image(image, mode)
        if shorter_side is not None and min(small.size) > shorter_side:
            share = shorter_side / min(small.size)
            small = small.resize((round(small.width * share), round(small.height * share)), Image.Resampling.BILINEAR)
        buffer = BytesIO()
        plain = Image.fromarray(np.asarray(small))  # what a file says besides, such as its colour profile, is left out
        plain.save(buffer, "JPEG" if is_jpeg else "PNG", quality=_JPEG_QUALITY)
        return buffer.getvalue()


def read_image_size(file: Path, most_pixels: int) -> tuple[int, int]:
    """Height and width of an upright image, from its header.

    Raises:
        UnreadableImageError: see ``decode_image``.
    """
    with opened_image(file, FILE_FORMATS, most_pixels) as image:
        sideways = image.getexif().get(0x0112, 1) >= 5 and image.format != "TIFF"  # whose size Pillow gives upright
        return image.size if sideways else image.size[::-1]


def _refuse_deep(image: Image.Image) -> None:
    if image.mode[0] in "IF":
        raise UnreadableImageError("has more than 8 bits for each channel; convert it, or use dataset npy")


def decode_picture(content: bytes | memoryview, array: Array) -> npt.NDArray[np.uint8]:
    """Pixels of a JPEG or PNG file, upright, in the array's shape (height, width, channels).

    A JPEG of at least twice the size is decoded at half of its resolution, a quarter or an eighth, which takes less.

    Raises:
        UnreadableImageError: if it is neither, damaged, or larger than the array allows.
    """
    from PIL import ImageOps

    height, width, _ = array.shape
    with opened_image(BytesIO(content), KEPT_FORMATS, array.most_pixels) as image:
        image.draft(image.mode, (width, height))
        ImageOps.exif_transpose(image, in_place=True)
        return image_to_array(image, image_mode(array), (width, height))


def decode_rows(
    path: Path, stored: Ragged, rows: Sequence[int], array: Array, pictures: Sequence[npt.NDArray[Any]]
) -> None:
    """Decode pictures of a shard, whose file is at `path`, each into one of `pictures`.

    Raises:
        Refusal: naming the first row that cannot be decoded, or that Pillow is missing.
    """
    row = -1
    try:
        for row, picture in zip(rows, pictures, strict=True):
            picture[:] = decode_picture(stored.row(row).data, array)
    except UnreadableImageError as error:
        raise Refusal(f"{path}: its row {row}, counted from 0, {error}. Prepare the data again.") from error
    except ModuleNotFoundError as error:
        raise Refusal(f"{path} holds encoded pictures: {error.name} is needed, pip install pillow.") from error

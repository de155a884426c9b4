"""Changes of pictures: shifts, mirror images and erasing by NumPy; crops, colours and RandAugment by Pillow."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image


Pictures = npt.NDArray[Any]
"""(N, height, width, channels), as the dataset holds them."""
Draws = npt.NDArray[np.float64]
"""Numbers from [0, 1), some for each picture; see `draws`."""

_ERASED_AREA = 0.02, 0.33
_ERASED_ASPECT = 0.3, 1 / 0.3
"""Of Zhong et al. 2017, as in torchvision."""


def shift_pictures(pictures: Pictures, draws: Draws, padding: int, fill: npt.NDArray[Any]) -> Pictures:
    """Move each picture by -padding to padding pixels down and right, by its draws (N, 2); `fill` comes in."""
    height, width = pictures.shape[1:3]
    moved = np.empty_like(pictures)
    moved[:] = fill
    shifts = np.floor(draws * (2 * padding + 1)).astype(int) - padding
    for number, (down, right) in enumerate(shifts.clip((-height, -width), (height, width)).tolist()):
        to_y, to_x = slice(max(down, 0), height + min(down, 0)), slice(max(right, 0), width + min(right, 0))
        of_y, of_x = slice(max(-down, 0), height - max(down, 0)), slice(max(-right, 0), width - max(right, 0))
        moved[number, to_y, to_x] = pictures[number, of_y, of_x]
    return moved


def flip_pictures(pictures: Pictures, draws: Draws, share: float) -> Pictures:
    """Mirror the pictures whose draw (N, 1) is below the share."""
    chosen = draws[:, 0] < share
    flipped = pictures.copy()
    flipped[chosen] = pictures[chosen, :, ::-1]
    return flipped


def erase_rectangles(pictures: Pictures, draws: Draws, share: float, fill: npt.NDArray[Any]) -> Pictures:
    """Fill a rectangle of the pictures whose first draw of (N, 5) is below the share; the others say which."""
    height, width = pictures.shape[1:3]
    erased = pictures.copy()
    smallest, largest = _ERASED_AREA
    thinnest, widest = np.log(_ERASED_ASPECT)
    for number in np.flatnonzero(draws[:, 0] < share).tolist():
        _, size, shape, down, right = draws[number]
        area = height * width * (smallest + size * (largest - smallest))
        aspect = np.exp(thinnest + shape * (widest - thinnest))
        tall, wide = min(height, round((area * aspect) ** 0.5)), min(width, round((area / aspect) ** 0.5))
        top, left = int(down * (height - tall + 1)), int(right * (width - wide + 1))
        erased[number, top : top + tall, left : left + wide] = fill
    return erased


PictureChange = Callable[["Image", float, tuple[int, ...]], "Image"]
"""Takes a picture of 8 bits, a strength from -1 to 1 and the colour for what comes in."""

PictureBox = tuple[float, float, float, float]
"""(left, top, right, bottom) in pixels."""

_ASPECTS = 3 / 4, 4 / 3
_LARGEST_MAGNITUDE = 30
_GREY = np.array([0.299, 0.587, 0.114])
"""How bright red, green and blue are: ITU-R 601, as in Pillow."""


def crop_box(draws: npt.NDArray[np.float64], height: int, width: int, smallest: float) -> PictureBox:
    """Choose a part of a picture by four draws, of `smallest` of its area or more.

    A part that would be wider or higher than the picture is cut to it.
    """
    size, shape, down, right = draws.tolist()
    area = smallest + size * (1 - smallest)
    low, high = map(math.log, _ASPECTS)
    aspect = math.exp(low + shape * (high - low))
    wide, tall = min(1.0, math.sqrt(area * aspect)) * width, min(1.0, math.sqrt(area / aspect)) * height
    left, top = right * (width - wide), down * (height - tall)
    return left, top, left + wide, top + tall


def crop_pictures(pictures: Pictures, draws: Draws, smallest: float) -> Pictures:
    """Cut a part of each picture by its draws (N, 4) and bring it to the picture's size, bilinear and antialiased."""
    from PIL import Image

    height, width, channels = pictures.shape[1:]
    whole = pictures.dtype == np.uint8 and channels in (1, 3)
    cropped = np.empty_like(pictures)
    for number, picture in enumerate(pictures):
        box = crop_box(draws[number], height, width, smallest)
        if whole:
            resized = to_image(picture).resize((width, height), Image.Resampling.BILINEAR, box)
            cropped[number] = np.asarray(resized).reshape(picture.shape)
            continue
        for channel in range(channels):
            plane = Image.fromarray(np.ascontiguousarray(picture[..., channel], np.float32))
            found = np.asarray(plane.resize((width, height), Image.Resampling.BILINEAR, box))
            cropped[number, ..., channel] = found if pictures.dtype.kind == "f" else np.rint(found)
    return cropped


def to_image(picture: npt.NDArray[np.uint8]) -> Image:
    """Give Pillow a picture (height, width, 1 or 3) of uint8."""
    from PIL import Image

    return Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture)


def jitter_color(image: Image, draws: npt.NDArray[np.float64], strength: float) -> Image:
    """Change brightness, contrast, saturation and hue by four draws, as one linear map of the colours."""
    brightness, contrast, saturation = 1 + strength * (2 * draws[:3] - 1)
    if image.mode == "L":
        grey = _mean_color(image)[0] * brightness * (1 - contrast)
        return image.point([_byte(brightness * contrast * value + grey) for value in range(256)])
    turned = _hue_turn(strength / 4 * (2 * float(draws[3]) - 1))
    matrix = turned @ (saturation * np.eye(3) + (1 - saturation) * _GREY) * contrast * brightness
    grey = float(_GREY @ _mean_color(image)) * brightness * (1 - contrast)
    return image.convert("RGB", tuple(np.column_stack([matrix, np.full(3, grey)]).ravel().tolist()))


def _hue_turn(share: float) -> npt.NDArray[np.float64]:
    """Turn colours around the axis of the greys by a share of the circle (Rodrigues' formula)."""
    angle, third = 2 * math.pi * share, 1 / math.sqrt(3)
    across = third * np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    turn: npt.NDArray[np.float64] = math.cos(angle) * np.eye(3) + math.sin(angle) * across + (1 - math.cos(angle)) / 3
    return turn


def _mean_color(image: Image) -> tuple[int, ...]:
    one = image.reduce(image.size).getpixel((0, 0))
    return one if isinstance(one, tuple) else (int(one or 0),)


def _byte(value: float) -> int:
    return min(255, max(0, round(value)))


def rand_augment(image: Image, draws: npt.NDArray[np.float64], magnitude: int, fill: tuple[int, ...]) -> Image:
    """Make changes of Cubuk et al. 2019, one for each two draws: which, and its direction."""
    changes = _changes()
    for which, direction in draws.reshape(-1, 2).tolist():
        strength = magnitude / _LARGEST_MAGNITUDE * (1 if direction < 0.5 else -1)
        image = changes[int(which * len(changes))](image, strength, fill)
    return image


@cache
def _changes() -> tuple[PictureChange, ...]:
    """The fourteen, with torchvision's ranges; made once, so that only who needs them imports Pillow."""
    from PIL import Image, ImageEnhance, ImageOps

    def moved(image: Image.Image, matrix: tuple[float, ...], fill: tuple[int, ...]) -> Image.Image:
        return image.transform(
            image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST, fillcolor=_one(fill)
        )

    def enhanced(kind: Any) -> PictureChange:
        return lambda image, strength, _: kind(image).enhance(1 + 0.9 * strength)

    return (
        lambda image, _, __: image,
        lambda image, _, __: ImageOps.autocontrast(image),
        lambda image, _, __: ImageOps.equalize(image),
        lambda image, strength, fill: image.rotate(30 * strength, fillcolor=_one(fill)),
        lambda image, strength, _: ImageOps.solarize(image, 256 - round(256 * abs(strength))),
        lambda image, strength, _: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
        *map(enhanced, (ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Brightness, ImageEnhance.Sharpness)),
        lambda image, strength, fill: moved(image, (1, 0.3 * strength, 0, 0, 1, 0), fill),
        lambda image, strength, fill: moved(image, (1, 0, 0, 0.3 * strength, 1, 0), fill),
        lambda image, strength, fill: moved(image, (1, 0, _SHIFT * strength * image.width, 0, 1, 0), fill),
        lambda image, strength, fill: moved(image, (1, 0, 0, 0, 1, _SHIFT * strength * image.height), fill),
    )


_SHIFT = 150 / 331
"""Largest shift, as a share of the side."""


def _one(fill: tuple[int, ...]) -> Any:
    return fill if len(fill) > 1 else fill[0]

"""Shifts, mirror images and erased rectangles: parts of arrays that are copied, in NumPy and of any dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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

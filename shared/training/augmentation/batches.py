"""All that is done to the training pictures of one rank's batch, from the settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data import Index, Split
from shared.data.dataset.order import RowNumbers
from shared.distributed import Refusal
from shared.settings.augmentation import AugmentationSettings
from shared.training.augmentation.draws import DrawStream, draw_uniform
from shared.training.augmentation.mixing import mix_labels, mix_pictures, plan_pairs
from shared.training.augmentation.pixels import (
    Pictures,
    crop_pictures,
    erase_rectangles,
    flip_pictures,
    jitter_color,
    rand_augment,
    shift_pictures,
    to_image,
)
from shared.training.core.batch_plan import BatchPlan


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """A global batch: its rows, and where it is in the training. Both are numbers from 0."""

    epoch: int
    number: int
    rows: RowNumbers


@dataclass(frozen=True)
class BatchAugmentation:
    """Reads the rows of one rank's batches and changes the pictures; made by `plan_augmentation`.

    Safe to be used from several threads: what is random comes from the place of a batch and the numbers of its rows.

    Attributes:
        classes: number of classes; 0 for a regression.
        fill: the train split's mean colour, in the pictures' dtype.
    """

    settings: AugmentationSettings
    seed: int
    classes: int
    fill: npt.NDArray[Any]

    def places(self, split: Split, plan: BatchPlan, epoch: int, start_batch: int) -> Iterator[BatchPlace]:
        """Give the places of an epoch's global batches of a split, from `start_batch` on."""
        found = split.batches(batch_size=plan.batch_size, seed=self.seed, epoch=epoch, start_batch=start_batch)
        return (BatchPlace(epoch, number, chosen) for number, chosen in enumerate(found, start_batch))

    def read(self, split: Split, place: BatchPlace, rank: int, world_size: int) -> dict[str, npt.NDArray[Any]]:
        """Read the rank's rows of a global batch as `x` and `y`, changed; mixed labels are shares of the classes."""
        size = len(place.rows) // world_size
        first, last = rank * size, (rank + 1) * size
        # Pairs begin at even places: with an odd number of rows for each rank, some lie on two of them.
        start, stop = (first & ~1, min(last + (last & 1), len(place.rows))) if self.settings.mixes else (first, last)
        rows = place.rows[start:stop]
        arrays = split.take(rows)
        x, y = self.change(arrays["x"], place.epoch, rows), arrays["y"]
        if self.settings.mixes:
            key = (self.seed, place.epoch, place.number)
            pairs = plan_pairs(self.settings, key, len(place.rows), *x.shape[1:3]).part(start, stop)
            x, y = mix_pictures(x, pairs), mix_labels(y, pairs, self.classes)
        return {"x": x[first - start : last - start], "y": y[first - start : last - start]}

    @property
    def only_decodes(self) -> bool:
        """Whether the pictures stay as they are, and come the same again."""
        return self.settings.is_off

    def change(self, pictures: Pictures, epoch: int, rows: RowNumbers) -> Pictures:
        """Change each picture for itself; `rows` are their numbers in the train split."""
        settings = self.settings

        def draws(stream: DrawStream, count: int) -> npt.NDArray[np.float64]:
            return draw_uniform(self.seed, epoch, rows, stream, count)

        if settings.crop_padding:
            pictures = shift_pictures(pictures, draws(DrawStream.SHIFT, 2), settings.crop_padding, self.fill)
        if settings.horizontal_flip:
            pictures = flip_pictures(pictures, draws(DrawStream.FLIP, 1), settings.horizontal_flip)
        if settings.resized_crop < 1:
            pictures = crop_pictures(pictures, draws(DrawStream.RESIZED_CROP, 4), settings.resized_crop)
        if settings.changes_colors:
            pictures = self._recolor(
                pictures, draws(DrawStream.COLOR, 4), draws(DrawStream.OPERATIONS, 2 * settings.rand_augment)
            )
        if settings.random_erasing:
            draws_here = draws(DrawStream.ERASING, 5)
            pictures = erase_rectangles(pictures, draws_here, settings.random_erasing, self.fill)
        return pictures

    def _recolor(
        self, pictures: Pictures, colors: npt.NDArray[np.float64], operations: npt.NDArray[np.float64]
    ) -> Pictures:
        settings, fill = self.settings, tuple(self.fill.tolist())
        changed = np.empty_like(pictures)
        for number, picture in enumerate(pictures):
            image = to_image(picture)
            if settings.color_jitter:
                image = jitter_color(image, colors[number], settings.color_jitter)
            image = rand_augment(image, operations[number], settings.rand_augment_magnitude, fill)
            changed[number] = np.asarray(image).reshape(picture.shape)
        return changed


def plan_augmentation(settings: AugmentationSettings, index: Index, seed: int) -> BatchAugmentation | None:
    """Say what is done to the training pictures of a dataset; None where it has none, or nothing has to be done.

    Encoded ones are decoded, if nothing else.

    Raises:
        Refusal: if the colours of pictures are to be changed that are not of uint8 with 1 or 3 channels, or if Pillow
            is not installed and needed.
    """
    x = index.arrays["x"]
    if index.statistics is None or len(x.shape) != 3 or (settings.is_off and not x.is_encoded):
        return None
    if settings.changes_colors and not (x.dtype == "uint8" and x.shape[-1] in (1, 3)):
        raise Refusal(
            f"color_jitter and rand_augment take pictures of uint8 with 1 or 3 channels; the rows are {x.dtype} of "
            f"shape {x.shape}. Set both to 0; the other changes take any pictures."
        )
    if settings.changes_colors or settings.resized_crop < 1 or x.is_encoded:
        _check_pillow()
    mean = np.array(index.statistics.mean)
    fill = (mean if np.dtype(x.dtype).kind == "f" else np.rint(mean)).astype(x.dtype)
    return BatchAugmentation(settings, seed, len(index.classes), fill)


def _check_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ModuleNotFoundError as error:
        raise Refusal(
            "encoded pictures, resized_crop, color_jitter and rand_augment need Pillow, which is not installed: pip "
            "install pillow."
        ) from error

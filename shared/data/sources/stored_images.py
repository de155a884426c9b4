"""Images that lie as plain bytes in a few files (CIFAR, IDX): unpacked once into a spool, then read by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.dataset.pictures import image_to_array
from shared.data.write.request import BadFiles, ItemSource, SourceRequest
from shared.data.write.spool import Spool
from shared.distributed import Refusal

_MODES = {"grayscale": ("L", 1), "rgb": ("RGB", 3)}


@dataclass(frozen=True, kw_only=True)
class StoredImages(ItemSource):
    """Images of one size, channels-last, and each file with the number of its first item.

    They are brought to the image mode ``L`` or ``RGB``; None leaves them as they are.
    """

    spool: Spool
    files: tuple[tuple[str, int], ...]
    mode: str | None

    @classmethod
    def of(
        cls,
        request: SourceRequest,
        spool: Spool,
        files: Sequence[tuple[str, int]],
        labels: npt.NDArray[np.int64],
        classes: tuple[str, ...],
    ) -> StoredImages:
        """Images of a spool, of the size and colour that the request asks for.

        Raises:
            Refusal: if a size or colour is asked for what has not one byte for each channel.
        """
        shape = spool.shape
        size = shape[:2] if request.image_size is None else (request.image_size,) * 2
        mode, channels = _MODES.get(request.color, ("L" if shape[2] == 1 else "RGB", shape[2]))
        wanted = (*size, channels)
        if wanted != shape and (spool.dtype != np.uint8 or shape[2] not in (1, 3)):
            raise Refusal(
                f"image_size and color need images of one byte for each of 1 or 3 channels; {files[0][0]} has "
                f"{spool.dtype} {shape}. Leave image_size empty and color auto."
            )
        return cls(
            spool=spool,
            files=tuple(files),
            mode=None if wanted == shape else mode,
            labels=labels,
            classes=classes,
            array=Array(wanted, spool.dtype.name),
        )

    def where(self, item: int) -> str:
        """File of an image, and its place there."""
        path, first = next((path, first) for path, first in reversed(self.files) if first <= item)
        return f"{path}, image {item - first}"

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Images by number, brought to the size and colour asked for."""
        del bad  # the files were checked when they were unpacked
        stored = self.spool[items]
        if self.mode is None:
            return stored
        from PIL import Image

        height, width = self.array.shape[:2]
        images = np.empty((len(items), *self.array.shape), np.uint8)
        for image, pixels in zip(images, stored, strict=True):
            found = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
            image[:] = image_to_array(found, self.mode, (width, height))
        return images

"""What a source is asked for, and what it offers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shared.data.index import Array
from shared.data.order import Rows
from shared.distributed import Refusal


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants read.

    Attributes:
        dataset: the source's name.
        folder: where the user's files are; None where none was given.
        image_size: side in pixels to which images are brought; None leaves them as they are.
        color: ``grayscale`` or ``rgb``; for sources that decode images.
    """

    dataset: str
    folder: Path | None = None
    image_size: int | None = None
    color: str = "rgb"

    def needed_folder(self) -> Path:
        """The user's folder.

        Raises:
            Refusal: if none was given, or if it is not there.
        """
        if self.folder is None:
            raise Refusal(f"dataset {self.dataset} reads files of yours: give their folder as the input data.")
        if not self.folder.is_dir():
            raise Refusal(f"data: {self.folder} is not a folder.")
        return self.folder

    def refuse_image_size(self) -> None:
        """Refuse an image size where it would be ignored."""
        if self.image_size is not None:
            raise Refusal(
                f"image_size {self.image_size} is for dataset image_folder; {self.dataset} has a fixed shape."
            )


class Source(Protocol):
    """Labelled items: which there are is known at once, and any of them can be read when its turn comes.

    Sources travel to worker processes, so they hold paths rather than open files.
    """

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        """Class of each item; known without reading an item."""

    @property
    def array(self) -> Array:
        """Shape and dtype of one item; the last axis is the channel (or the feature)."""

    @property
    def decodes(self) -> bool:
        """Whether reading an item costs enough work for several processes to pay."""

    def read(self, items: Rows) -> npt.NDArray[Any]:
        """Items by number, as an array (len(items), *shape).

        Raises:
            Refusal: naming the file or row that cannot be used.
        """

"""What items with labels offer to be written: any source of images, arrays or tables."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.write.request import BadFiles
from shared.data.write.splits import Labels


class ItemSource(Protocol):
    """Items with a label or a target each: which there are is known at once, and any can be read when its turn comes.

    Sources that decode travel to worker processes, so they hold paths rather than open files.
    """

    @property
    def task(self) -> str:
        """``classification`` or ``regression``."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels; none for regression."""

    @property
    def labels(self) -> Labels:
        """Class or target of each item; known without reading an item."""

    @property
    def array(self) -> Array:
        """Shape and dtype of one item; the last axis is the channel (or the feature)."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of a table's features, in order; empty for anything else."""

    @property
    def decodes(self) -> bool:
        """Whether reading an item costs enough work for several processes to pay."""

    def where(self, item: int) -> str:
        """Where an item comes from, for messages: its file, or more than that."""

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Items by number, without those that are reported to ``bad``: an array (items that are good, *shape).

        Raises:
            Refusal: naming the file or row that cannot be used.
        """

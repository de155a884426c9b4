"""What items with labels offer to be written: any source of images, arrays or tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.write.request import BadFiles
from shared.data.write.splits import Labels


@dataclass(frozen=True, kw_only=True)
class ItemSource(ABC):
    """Items with a label or a target each: which there are is known at once, and any can be read when its turn comes.

    Sources that decode travel to worker processes, so they hold paths rather than open files.

    Attributes:
        labels: class or target of each item; known without reading an item.
        classes: names of the classes, in the order of the labels; none for regression.
        array: shape and dtype of one item; the last axis is the channel (or the feature).
        task: ``classification`` or ``regression``.
        columns: names of a table's features, in order; empty for anything else.
        decodes: whether reading an item costs enough work for several processes to pay.
    """

    labels: Labels
    classes: tuple[str, ...]
    array: Array
    task: str = "classification"
    columns: tuple[str, ...] = ()
    decodes: bool = False

    @abstractmethod
    def where(self, item: int) -> str:
        """Where an item comes from, for messages: its file, or more than that."""

    @abstractmethod
    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Items by number, without those that are reported to ``bad``: an array (items that are good, *shape).

        Raises:
            Refusal: naming the file or row that cannot be used.
        """

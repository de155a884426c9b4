"""What a source is asked for, what it offers, and what is done about files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.dataset.order import Rows
from shared.data.sources.file_fault import show_name
from shared.data.write.splits import Labels
from shared.distributed import Refusal

FOR_IMAGES = "image_folder, cifar and idx"


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that cannot be used.

    Attributes:
        path: relative to the user's folder.
        reason: what is wrong with it, as a sentence goes on after the path.
        item: the item that it is; None if it was left out before items were counted.
    """

    path: str
    reason: str
    item: int | None = None


@dataclass(slots=True)
class BadFiles:
    """What is done about files that cannot be used: the first one raises, or all are noted and left out.

    Attributes:
        skip: whether they are left out.
        folder: the user's folder, for messages.
        found: those left out so far.
    """

    skip: bool = False
    folder: Path = Path()
    found: list[BadFile] = field(default_factory=list)

    def report(self, path: str, reason: str, item: int | None = None, hint: str = "") -> None:
        """Note a file.

        Raises:
            Refusal: if files are not left out.
        """
        path = show_name(path)
        if not self.skip:
            hint = hint or "Repair or remove it, or leave out such files with on_bad_file skip."
            raise Refusal(f"{self.folder / path} {reason}. {hint}")
        self.found.append(BadFile(path, reason, item))


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants read.

    Attributes:
        dataset: the source's name.
        folder: where the user's files are; None where none was given.
        image_size: side in pixels to which images are brought; None leaves them as they are.
        color: ``grayscale``, ``rgb`` or ``auto``: rgb for an image_folder, else as the files have it.
        max_megapixels: images of more than this many million pixels are not decoded.
        task: ``classification`` or ``regression``.
        target: the column of a table that is to be predicted.
        ignore_columns: columns of a table that are left out.
        skip_missing: leave out rows of a table that lack a value, instead of refusing the table.
        bad: what is done about files that cannot be used.
        note: told now and then how far a long reading is.
    """

    dataset: str
    folder: Path | None = None
    image_size: int | None = None
    color: str = "auto"
    max_megapixels: int = 64
    task: str = "classification"
    target: str = "target"
    ignore_columns: tuple[str, ...] = ()
    skip_missing: bool = False
    bad: BadFiles = field(default_factory=BadFiles)
    note: Callable[[str], None] = _silent

    def needed_folder(self) -> Path:
        """The user's folder.

        Raises:
            Refusal: if none was given, or if it is not there.
        """
        if self.folder is None:
            raise Refusal(f"dataset {self.dataset} reads files of yours: give their folder as the input data.")
        if not self.folder.is_dir():
            raise Refusal(f"data: {self.folder} is not a folder.")
        self.bad.folder = self.folder
        return self.folder

    def refuse_image_size(self) -> None:
        """Refuse an image size or a colour where it would be ignored."""
        if self.image_size is not None:
            raise Refusal(
                f"image_size {self.image_size} is for dataset {FOR_IMAGES}; {self.dataset} has a fixed shape."
            )
        if self.color != "auto":
            raise Refusal(
                f"color {self.color} is for dataset {FOR_IMAGES}; {self.dataset} stays as it is: choose auto."
            )

    def refuse_regression(self) -> None:
        """Refuse a task that the source has no numbers for."""
        if self.task != "classification":
            raise Refusal(f"task {self.task} is for dataset csv, parquet and npy; {self.dataset} has classes only.")


class Source(Protocol):
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

    def read(self, items: Rows, bad: BadFiles) -> npt.NDArray[Any]:
        """Items by number, without those that are reported to ``bad``: an array (items that are good, *shape).

        Raises:
            Refusal: naming the file or row that cannot be used.
        """


def names(found: list[str] | tuple[str, ...], most: int = 8) -> str:
    """A list for a message, cut where it would get long."""
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "") or "nothing"

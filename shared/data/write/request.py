"""What a source is asked for and what it offers, and what is done about files that cannot be used."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from shared.data.dataset.encodings import TableEncoding
from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.formats.file_format import show_name
from shared.data.write.splits import DocumentSplitter, Labels
from shared.data.write.spool import Spool
from shared.distributed import Refusal
from shared.storage import list_entries, retry_transient

_EVERYTHING_TRAINS = DocumentSplitter(seed=0, validation=0, test=0)
_SHOWN_FILES = 10  # left out, above which only skipped.csv names them


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file that cannot be used: `reason` is a sentence that goes on after its path in the user's folder.

    `item` is None if it was left out before items were counted.
    """

    path: str
    reason: str
    item: int | None = None


@dataclass(slots=True)
class BadFiles:
    """What is done about files that cannot be used: the first one raises, or all are noted and left out."""

    skip: bool = False
    folder: Path = Path()
    found: list[BadFile] = field(default_factory=list)

    def report(self, path: str, reason: str, item: int | None = None) -> None:
        """Note a file.

        Raises:
            Refusal: if files are not left out.
        """
        path = show_name(path)
        if not self.skip:
            raise Refusal(
                f"{self.folder / path} {reason}. Repair or remove it, or leave out such files with on_bad_file skip."
            )
        self.found.append(BadFile(path, reason, item))


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What the user wants read: of images and arrays, of tables, or of texts; the rest keeps its defaults.

    Attributes:
        folder: where the user's files are, or one file; None where none was given.
        labelled: whether every text needs a class.
        pattern: names of the files with texts that count, separated by commas.
        image_size: side in pixels to which images are brought; None leaves them as they are.
        color: ``grayscale``, ``rgb`` or ``auto``: rgb for an image_folder, else as the files have it.
        max_megapixels: images of more than this many million pixels are not decoded.
        keeps_encoded: whether pictures are kept as the bytes of their files.
        encoded_size: shorter side to which larger pictures are then reduced; None leaves the files as they are.
        task: ``classification`` or ``regression``.
        target: the column of a table that is to be predicted.
        ignore_columns: columns of a table that are left out.
        categorical_columns: columns of a table that are categories, whatever they hold.
        missing_values: texts or numbers in a table that stand for a missing value, besides those that always do.
        skip_missing: leave out rows of a table that lack a value, instead of refusing the table.
        impute_missing: fill in what is missing, and leave out rows that lack what is predicted alone.
        note: told now and then how far a long reading is.
    """

    dataset: str
    folder: Path | None = None
    labelled: bool = False
    splitter: DocumentSplitter = _EVERYTHING_TRAINS
    text_column: str = "text"
    label_column: str = "label"
    pattern: str = "*"
    most_bytes: int = 16 * 2**20
    image_size: int | None = None
    color: str = "auto"
    max_megapixels: int = 64
    keeps_encoded: bool = False
    encoded_size: int | None = None
    task: str = "classification"
    target: str = "target"
    ignore_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    missing_values: tuple[str, ...] = ()
    skip_missing: bool = False
    impute_missing: bool = False
    bad: BadFiles = field(default_factory=BadFiles)
    note: Callable[[str], None] = lambda _: None

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

    def find_files(self, suffixes: tuple[str, ...] = ("",), hidden: str = ".") -> tuple[Path, list[Path]]:
        """The user's folder, and its files with one of the endings, in the order of their names.

        Files and folders whose first letter is in `hidden` are passed over.

        Raises:
            Refusal: if nothing was given, if it is not there, or if there are no such files.
        """
        if self.folder is None:
            raise Refusal(f"dataset {self.dataset} reads files of yours: give them as the input data.")
        if self.folder.is_file():
            self.bad.folder = self.folder.parent
            return self.folder.parent, [self.folder]
        if not self.folder.is_dir():
            raise Refusal(f"data: there is no file or folder {self.folder}.")
        every = sorted(_walk_files(self.folder))
        shown = [path for path in every if not any(p[0] in hidden for p in path.relative_to(self.folder).parts)]
        found = [path for path in shown if path.name.lower().endswith(suffixes)]
        if not found:
            wanted = f"that ends in {' or '.join(suffixes)}" if suffixes != ("",) else "at all"
            there = list_names(sorted({path.suffix or path.name for path in shown}))
            raise Refusal(
                f"{self.folder} holds no file {wanted}, but {there}. Choose the dataset that your files are, or "
                "convert them."
            )
        self.bad.folder = self.folder
        self._note_others(suffixes, [path for path in shown if path not in set(found)])
        return self.folder, found

    def _note_others(self, suffixes: tuple[str, ...], others: list[Path]) -> None:
        """Say how many files of other kinds are left out."""
        if others and suffixes != ("",):
            kinds = Counter(path.suffix or path.name for path in others)
            counted = [f"{kind} ({count})" for kind, count in kinds.most_common()]
            self.note(f"left out are files that do not end in {' or '.join(suffixes)}: {list_names(counted)}")

    def refuse_image_size(self) -> None:
        """Refuse an image size or a colour where it would be ignored."""
        if self.image_size is not None:
            raise Refusal(
                f"image_size {self.image_size} is for dataset image_folder; {self.dataset} has a fixed shape."
            )
        if self.color != "auto":
            raise Refusal(
                f"color {self.color} is for dataset image_folder; {self.dataset} stays as it is: choose auto."
            )

    def refuse_regression(self) -> None:
        """Refuse a task that the source has no numbers for."""
        if self.task != "classification":
            raise Refusal(f"task {self.task} is for dataset csv, parquet and npy; {self.dataset} has classes only.")


def list_names(found: list[str] | tuple[str, ...], most: int = 8) -> str:
    """A list for a message, cut where it would get long."""
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "") or "nothing"


def join_names(names: Iterable[str]) -> str:
    """Write names as an input with commas takes them: one with a comma stands in double quotes."""
    return ",".join(f'"{name}"' if "," in name else name for name in names)


def describe_skipped(skipped: list[tuple[str, str]], what: str) -> list[str]:
    """Lines about files or documents, as `what` says, that were left out: the first ones, and how many."""
    if not skipped:
        return []
    lines = [f"left out: {path} {reason}" for path, reason in skipped[:_SHOWN_FILES]]
    return [*lines, f"{len(skipped)} bad {what} were left out; skipped.csv in the output names all of them"]


@dataclass(frozen=True, kw_only=True)
class ItemSource(ABC):
    """Items with a label or a target each: which there are is known at once, and any can be read when its turn comes.

    Sources that decode travel to worker processes, so they hold paths rather than open files.

    The `array` is shape and dtype of one item, its last axis the channel (or the feature); `columns` are a table's
    features, in order, and `table` says what they were made of. A source `decodes` if reading an item costs enough work
    for several processes to pay.
    """

    labels: Labels
    classes: tuple[str, ...]
    array: Array
    task: str = "classification"
    columns: tuple[str, ...] = ()
    table: TableEncoding | None = None
    decodes: bool = False

    def encoded(self, train: Spool) -> ItemSource:
        """The source with what has to be learnt from the items of the train split, whose numbers are given.

        Raises:
            Refusal: if they cannot be learnt from.
        """
        return self

    @abstractmethod
    def where(self, item: int) -> str:
        """Where an item comes from, for messages: its file, or more than that."""

    @abstractmethod
    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Items by number, without those that are reported to ``bad``: an array (items that are good, *shape).

        Raises:
            Refusal: naming the file or row that cannot be used.
        """


@dataclass(frozen=True, kw_only=True)
class EncodedSource(ItemSource):
    """Pictures that are kept as the bytes of files, of which one has about `file_bytes`; the `array` is encoded."""

    file_bytes: int

    @abstractmethod
    def read_encoded(self, items: RowNumbers, bad: BadFiles) -> tuple[list[bytes], npt.NDArray[Any]]:
        """Bytes of pictures by number, and what they are decoded to, without those that are reported to ``bad``.

        Raises:
            Refusal: see ``read``.
        """


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one; a link that leads to itself is none, and is named when it is opened."""
    try:
        return retry_transient(entry.is_dir)
    except OSError:
        return False


def _walk_files(folder: Path) -> Iterator[Path]:
    """Give what is below a folder and is none itself, in any order; links to folders are not followed."""
    with suppress(PermissionError):
        for entry in list_entries(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _walk_files(Path(entry.path))
            elif not is_folder(entry):
                yield Path(entry.path)

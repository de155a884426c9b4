"""Documents: where they come from, which split each belongs to, and what makes one unusable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from shared.data.sources import BadFiles
from shared.distributed import Refusal

UNIT_BYTES = 16 * 2**20
"""Of the user's files that one worker reads: enough that gzip's start on an empty window does not show in its size."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text.

    Attributes:
        text: at least one character.
        split: train, validation or test.
        label: its class; empty for a language model.
    """

    text: str
    split: str
    label: str = ""


class Documents(Protocol):
    """A source of documents; safe to read from several threads."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each unit, as they lie on the disk; a function of the data alone, and the same on every node."""

    def read(self, unit: int, bad: BadFiles) -> Iterator[Document]:
        """Documents of a unit in order, without those that are reported to ``bad``.

        Raises:
            Refusal: naming what cannot be used.
        """


@dataclass(frozen=True, slots=True)
class Splitter:
    """Decides which split a document goes into, from the seed and what the document is called (or says).

    Attributes:
        seed: 0 or more.
        validation: share of all documents, from 0 up to but without 1.
        test: likewise; the two together stay below 1.
    """

    seed: int
    validation: float
    test: float

    def number(self, key: bytes) -> int:
        """A number below 2**64 that looks random."""
        mixed = hashlib.blake2b(key, digest_size=8, key=self.seed.to_bytes(16, "big"))
        return int.from_bytes(mixed.digest(), "big")

    def of(self, key: bytes) -> str:
        """The split of one document, each with the probability of its fraction: no other has to be known."""
        at = self.number(key) / 2**64
        return "test" if at < self.test else "validation" if at < self.test + self.validation else "train"

    def of_all(self, keys: Sequence[str], labels: Sequence[str]) -> list[str]:
        """The split of every document, with the fractions as exact as each class allows: one at least in each split.

        Raises:
            Refusal: if a class has too few documents, naming them all.
        """
        splits = ["train"] * len(keys)
        members: dict[str, list[int]] = {}
        for item, label in enumerate(labels):
            members.setdefault(label, []).append(item)
        lacking = []
        for label, items in members.items():
            items.sort(key=lambda item: self.number(keys[item].encode("utf-8", "surrogateescape")))
            test, validation = (_quota(fraction, len(items)) for fraction in (self.test, self.validation))
            if test + validation >= len(items):
                lacking.append(f"{f'the class {label!r} has' if label else 'there are'} {len(items)}")
            for place, item in enumerate(items[: test + validation]):
                splits[item] = "test" if place < test else "validation"
        if lacking:
            raise Refusal(
                f"too few documents for validation_fraction {self.validation:g} and test_fraction {self.test:g}: "
                f"{'; '.join(lacking[:8])}. Each split takes one at least: add documents, or set a fraction to 0."
            )
        return splits


def _quota(fraction: float, count: int) -> int:
    # The decimal that was typed: as a float, 0.07 * 100 is a little more than 7.
    return max(1, round(Fraction(str(fraction)) * count)) if fraction > 0 else 0


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants read.

    Attributes:
        dataset: the source's name.
        folder: the user's folder or file; None where none was given.
        labelled: whether every document needs a class.
        splitter: decides on the splits.
        text_column: of a table.
        label_column: of a table.
        pattern: names of the files that count, separated by commas.
        most_bytes: of a document.
        bad: what is done about documents that cannot be used.
    """

    dataset: str
    folder: Path | None
    labelled: bool
    splitter: Splitter
    text_column: str = "text"
    label_column: str = "label"
    pattern: str = "*"
    most_bytes: int = 16 * 2**20
    bad: BadFiles = field(default_factory=BadFiles)

    def found(self, suffixes: tuple[str, ...] = ("",)) -> tuple[Path, list[Path]]:
        """The user's folder, and its files with one of the endings, in the order of their names; hidden ones are left.

        Raises:
            Refusal: if nothing was given, if it is not there, or if there are no such files.
        """
        if self.folder is None:
            raise Refusal(f"dataset {self.dataset} reads files of yours: give them as the input data.")
        if self.folder.is_file():
            return self.folder.parent, [self.folder]
        if not self.folder.is_dir():
            raise Refusal(f"data: there is no file or folder {self.folder}.")
        every = sorted(path for path in self.folder.rglob("*") if not path.is_dir())
        shown = [path for path in every if not any(part[0] == "." for part in path.relative_to(self.folder).parts)]
        right = [path for path in shown if path.name.lower().endswith(suffixes)]
        if not right:
            wanted = f"that ends in {' or '.join(suffixes)}" if suffixes != ("",) else "at all"
            there = ", ".join(sorted({path.suffix or path.name for path in shown})[:8]) or "nothing"
            raise Refusal(f"{self.folder} holds no file {wanted}, but {there}. Choose the dataset that your files are.")
        return self.folder, right


def decoded(data: bytes, place: str, most: int, bad: BadFiles) -> str | None:
    """Text of a document in UTF-8; None if it is reported as bad: too large, or not UTF-8."""
    if len(data) > most:
        bad.report(place, f"has {len(data):,} bytes; max_megabytes {most / 2**20:g} allows {most:,}")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad.report(place, f"is not text in UTF-8: byte {error.start} is 0x{data[error.start]:02x}, {error.reason}")
        return None

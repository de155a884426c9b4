"""Rows as documents: of JSON lines, CSV or Parquet, with a column of texts and perhaps one of classes.

What one format knows is in `json_lines.py`, `csv_rows.py` and `parquet_rows.py`; what holds for all is here. A row goes
into a split by its text, so that a text that occurs twice is never in two splits, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from shared.data.sources import BadFiles
from shared.data.sources.file_fault import find_file_fault, find_name_fault
from shared.data.sources.source import names
from shared.data.text.documents import Document, Request
from shared.distributed import Refusal


class WrongFileError(ValueError):
    """What is wrong with a file, as a sentence goes on after its path."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a file that is read from front to back.

    Attributes:
        path: the file.
        first: where it begins: a byte or a row group, as the format has it.
        last: where the next one begins.
        size: bytes on the disk.
    """

    path: Path
    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class Row:
    """What two columns hold in a row.

    Attributes:
        at: which row of the part it is, from which ``Format.place`` makes a place.
        text: a str; anything else is a fault.
        label: its class; None if it has none.
        fault: why the row cannot be used, as a sentence goes on after its place.
    """

    at: int
    text: Any = None
    label: Any = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read; no label for a language model."""

    text: str
    label: str | None

    def __iter__(self) -> Iterator[str]:
        return (name for name in (self.text, self.label) if name is not None)


class Format(Protocol):
    """One kind of file that holds rows."""

    suffixes: tuple[str, ...]

    def check(self, path: Path, columns: Columns) -> None:
        """See that the columns are there.

        Raises:
            Refusal: if they are not, or if one is of a type that cannot be used.
            WrongFileError: if the file is of another kind, or damaged.
        """

    def parts(self, path: Path) -> list[Part]:
        """Cut a file into parts of about ``UNIT_BYTES``, as far as it can be read from its middle.

        Raises:
            WrongFileError: if the file is of another kind, or damaged.
        """

    def rows(self, part: Part, columns: Columns, most: int) -> Iterator[Row]:
        """Rows of a part; ``most`` bytes are the longest text that is wanted.

        Raises:
            WrongFileError: if the file is damaged, so that what follows cannot be read.
        """

    def place(self, part: Part, at: int) -> str:
        """The line, or the row, of a row of the part; both counted in the whole file, from 1."""


@dataclass(frozen=True)
class Rows:
    """The rows of some files.

    Attributes:
        request: what the user wants read.
        root: what paths are relative to.
        form: of the files.
        parts: the units.
    """

    request: Request
    root: Path
    form: Format
    parts: list[Part]

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each unit."""
        return [part.size for part in self.parts]

    def read(self, unit: int, bad: BadFiles) -> Iterator[Document]:
        """Documents of a unit."""
        part, path = self.parts[unit], str(self.parts[unit].path.relative_to(self.root))
        try:
            for row in self.form.rows(part, _columns(self.request), self.request.most_bytes):
                document = self._document(row)
                if isinstance(document, Document):
                    yield document
                else:
                    bad.report(f"{path}:{self.form.place(part, row.at)}", document)
        except WrongFileError as error:
            bad.report(path, f"{error}; what follows is left out")

    def _document(self, row: Row) -> Document | str:
        """The document of a row, or what is wrong with the row."""
        if row.fault:
            return row.fault
        if not isinstance(row.text, str) or not row.text:
            return f"has no text in column {self.request.text_column!r}, but {row.text!r:.40}"
        label = _class(row.label) if self.request.labelled else ""
        if label is None:
            return f"has no class in column {self.request.label_column!r}, but {row.label!r:.40}"
        try:
            data = row.text.encode()
        except UnicodeEncodeError:  # bytes that are none come as surrogates
            return f"is not text in UTF-8 in column {self.request.text_column!r}"
        if len(data) > (most := self.request.most_bytes):
            return f"has {len(data):,} bytes; max_megabytes {most / 2**20:g} allows {most:,}"
        return Document(row.text, self.request.splitter.of(data), label)


def open_rows(request: Request, form: Format) -> Rows:
    """Find the files of a format, and cut them into units.

    Raises:
        Refusal: if there are none that can be used, or if the first lacks a column.
    """
    root, paths = request.found(form.suffixes)
    request.bad.folder = root
    parts: list[Part] = []
    for path in paths:
        try:
            parts += _parts(path, request, form, first=not parts)
        except WrongFileError as error:
            request.bad.report(str(path.relative_to(root)), str(error))
    if not parts:
        found = request.bad.found[0]
        raise Refusal(f"{root}: none of its {len(paths)} files can be used; {found.path} {found.reason}.")
    return Rows(request, root, form, parts)


def _parts(path: Path, request: Request, form: Format, *, first: bool) -> list[Part]:
    """The parts of a file; the first one has to have the columns."""
    if fault := find_file_fault(path) or find_name_fault(path):
        raise WrongFileError(fault)
    if first:
        form.check(path, _columns(request))
    return form.parts(path)


def need(path: Path, there: Sequence[str], columns: Columns) -> None:
    """Refuse a file that lacks a column.

    Raises:
        Refusal: naming what is missing and what is there.
    """
    inputs = {"text_column": columns.text, "label_column": columns.label}
    lacking = {key: name for key, name in inputs.items() if name is not None and name not in there}
    if lacking:
        close = [match for name in lacking.values() for match in get_close_matches(name, there, 1)]
        hint = f"Did you mean {names(close)}?" if close else f"Set {' and '.join(lacking)} to one of these."
        wanted = names([f"{name!r} ({key})" for key, name in lacking.items()])
        raise Refusal(f"{path} has no column {wanted}; it has {names(list(there))}. {hint}")


def _columns(request: Request) -> Columns:
    return Columns(request.text_column, request.label_column if request.labelled else None)


def _class(value: Any) -> str | None:
    """Name of a class; None where there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) or (isinstance(value, str) and value) else None

"""What a format of files offers: the rows of texts one by one, and for tables of numbers whole columns at once.

Below that, whether a path can be read as a file at all, asked before it is: a pipe keeps its reader waiting for ever.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, cast

from shared.storage import open_file, retry_transient

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_BYTES = 16 * 2**20
"""Of the user's files that one worker reads: enough that gzip's start on an empty window does not show in its size."""

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a file, plain or gzipped, raises if it is damaged."""


_KINDS: Mapping[Callable[[int], bool], str] = MappingProxyType(
    {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
)


class WrongFileError(ValueError):
    """What is wrong with a file, as a sentence goes on after its path."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file that is read from front to back; `size` are its bytes on the disk.

    It begins at `first`, a byte or a row group, as the format has it; the next one begins at `last`.
    """

    path: Path
    first: int
    last: int
    size: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """What the columns that were asked for hold in a row of a part, of whose number ``FileFormat.place`` makes a place.

    The `fault` is why the row cannot be used, as a sentence goes on after its place; it then has no cells.
    """

    at: int
    cells: Sequence[Any] = ()
    fault: str = ""


class FileFormat(ABC):
    """One kind of file that holds rows."""

    suffixes: tuple[str, ...]
    """What the files' names end in."""

    @abstractmethod
    def header(self, path: Path) -> list[str]:
        """Names of the columns; what is not UTF-8 in them comes as surrogates.

        Raises:
            Refusal: if the file holds something else than rows with names.
            WrongFileError: if the file is of another kind, or damaged.
        """

    def types(self, path: Path) -> Mapping[str, pa.DataType]:
        """Type of each column; nothing where the file does not say.

        Raises:
            WrongFileError: if the file is of another kind, or damaged.
        """
        del path
        return {}

    @abstractmethod
    def parts(self, path: Path) -> list[FilePart]:
        """Cut a file into parts of about ``UNIT_BYTES``, as far as it can be read from its middle.

        Raises:
            WrongFileError: if the file is of another kind, or damaged.
        """

    @abstractmethod
    def rows(self, part: FilePart, names: Sequence[str], most: int) -> Iterator[FileRow]:
        """Rows of a part: the cells of these columns; ``most`` bytes are the longest text that is wanted.

        A text that is not UTF-8 has surrogates in their place, so that it spoils its own row alone.

        Raises:
            WrongFileError: if a column is missing, or if the file is damaged, so that what follows cannot be read.
        """

    @abstractmethod
    def place(self, part: FilePart, at: int) -> str:
        """The line, or the row, of a row of the part; both counted in the whole file, from 1."""


class TableFormat(FileFormat):
    """A kind of file whose columns of numbers can be read at once."""

    table_suffixes: tuple[str, ...]
    """What files with a table of numbers end in."""

    @abstractmethod
    def blocks(
        self, path: Path, types: Mapping[str, pa.DataType], missing: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Columns in the order asked, some rows at a time.

        `types` maps each column to the type that its text becomes; a file that says types keeps its own. Texts in
        `missing` are no numbers, but missing ones, where texts become numbers.

        Raises:
            WrongFileError: if the file is damaged, or if a cell is not what its column holds.
        """

    @abstractmethod
    def row_place(self, path: Path, row: int) -> str:
        """Where a row (from 0) of the blocks lies, for messages: ``path:line``, or better."""


def group_units(sizes: Sequence[int], most: int) -> list[range]:
    """Neighbours taken together as units of ``most`` bytes, or of one item that has more; one unit at least."""
    bounds, filled = [0], 0
    for item, size in enumerate(sizes):
        if filled and filled + size > most:
            bounds.append(item)
            filled = 0
        filled += size
    return [range(first, last) for first, last in pairwise([*bounds, len(sizes)])]


def is_gzipped(path: Path) -> bool:
    """Whether a file is gzipped, by its name."""
    return path.name.lower().endswith(".gz")


def open_bytes(path: Path) -> IO[bytes]:
    """Content of a file, unpacked."""
    return cast("IO[bytes]", gzip.open(open_file(path))) if is_gzipped(path) else open_file(path)


def one_line(error: Exception) -> str:
    """What a library says, as it fits into a message."""
    return " ".join(str(error).split())[:200]


def find_file_fault(path: Path) -> str:
    """What keeps a path from being read as a file, as a sentence goes on after it; empty if nothing does."""
    try:
        mode = retry_transient(path.stat).st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return ""
    return f"is {next((word for test, word in _KINDS.items() if test(mode)), 'a device')}, not a file"


def is_utf8(text: str) -> bool:
    """Whether a name or a text was UTF-8 where it was read: bytes that are none come as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_name_fault(path: Path) -> str:
    """What is wrong with a path's name for a reader that wants text; empty if nothing is."""
    return "" if is_utf8(str(path)) else "has a name that is not UTF-8: rename it"


def show_name(name: str) -> str:
    r"""A name as it can be printed and written: bytes that are not UTF-8 as \x and two digits."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")

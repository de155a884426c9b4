"""What a format of files offers: the rows of texts one by one, and for tables of numbers whole columns at once.

Below that, whether a path can be read as a file at all, asked before it is: a pipe keeps its reader waiting for ever;
and how much of a file is taken on at all.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

from shared.distributed import Refusal
from shared.storage import open_file, retry_transient

if TYPE_CHECKING:
    import pyarrow as pa

UNIT_BYTES = 16 * 2**20
"""Of the user's files that one worker reads: enough that gzip's start on an empty window does not show in its size."""

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a file, plain or gzipped, raises if it is damaged."""

BUDGET_VARIABLE = "ALLRANKS_DATA_BUDGET"
"""The environment variable that changes limits: ``columns=200000,classes=20000``."""


_KINDS: Mapping[Callable[[int], bool], str] = MappingProxyType(
    {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
)


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def is_number(text: str) -> bool:
    """Return whether a cell is a number as tables write it; Infinity, NaN and 12_05 are texts."""
    return _NUMBER.fullmatch(text) is not None


class WrongFileError(ValueError):
    """What is wrong with a file, as a sentence goes on after its path."""


def _limit(default: int, most: int, what: str) -> Any:
    return field(default=default, metadata={"most": most, "what": what})


@dataclass(frozen=True, slots=True)
class ReadBudget:
    """How much of other people's files is taken on: all limits that no input of a component sets.

    They lie far above real data; without them a small file can take a node's memory, its disk or its day.
    """

    columns: int = _limit(100_000, 10**7, "columns of a table")
    classes: int = _limit(10_000, 32_767, "classes, and different texts of a column that is a category")
    header_bytes: int = _limit(2**20, 2**30, "bytes of the line with a CSV file's names, and of a block of rows")
    cell_bytes: int = _limit(2**17, 2**30, "bytes of a cell, where max_megabytes does not allow more")
    json_line_bytes: int = _limit(2**26, 2**30, "bytes of the first line of JSON lines")
    unpacked_bytes: int = _limit(64 * 2**30, 2**50, "bytes that one gzipped file unpacks to")

    def how_to_raise(self, name: str) -> str:
        """The end of a message about a limit: how to raise it, and how far."""
        most = next(one for one in fields(self) if one.name == name).metadata["most"]
        return f"to raise the limit set the step's environment variable {BUDGET_VARIABLE}={name}=N, N up to {most:,}"


def read_budget() -> ReadBudget:
    """The limits, as the environment has them.

    Raises:
        Refusal: if the variable names something else, or a number out of range.
    """
    return _parse_budget(os.environ.get(BUDGET_VARIABLE, ""))


@lru_cache(maxsize=4)
def _parse_budget(text: str) -> ReadBudget:
    most = {one.name: one.metadata["most"] for one in fields(ReadBudget)}
    values: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in most:
            raise Refusal(f"{BUDGET_VARIABLE}: {name!r:.60} is no limit; there are {', '.join(most)}.")
        is_number = value.isascii() and value.isdecimal() and len(value) <= 18
        if not is_number or not 1 <= int(value) <= most[name]:
            raise Refusal(f"{BUDGET_VARIABLE}: {name}={value:.60} is no whole number from 1 to {most[name]:,}.")
        values[name] = int(value)
    return ReadBudget(**values)


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
    """Content of a file, unpacked.

    Its reading ends in an OSError where a gzipped file unpacks to more than the budget has: a megabyte may hold a
    gigabyte.
    """
    return io.BufferedReader(_Unpacked(path), 2**17) if is_gzipped(path) else open_file(path)


class _Unpacked(io.RawIOBase):
    """A gzipped file, up to the bytes that the budget allows."""

    def __init__(self, path: Path) -> None:
        self._file = gzip.GzipFile(fileobj=open_file(path))
        self._budget = read_budget()
        self._left = self._budget.unpacked_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        content = self._file.read1(len(buffer))
        self._left -= len(content)
        if self._left < 0:
            budget = self._budget
            raise OSError(
                f"it unpacks to more than {budget.unpacked_bytes:,} bytes; {budget.how_to_raise('unpacked_bytes')}"
            )
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def check_columns(names: Sequence[str]) -> Sequence[str]:
    """Give the names of a table's columns back.

    Raises:
        WrongFileError: if they are more than the budget has.
    """
    if len(names) > (budget := read_budget()).columns:
        raise WrongFileError(
            f"has {len(names):,} columns; up to {budget.columns:,} are read; {budget.how_to_raise('columns')}"
        )
    return names


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

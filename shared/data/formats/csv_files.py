"""CSV with a line of names, then rows whose cells may hold line breaks in quotes; by comma, semicolon or tab."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from shared.data.formats.file_format import (
    READ_ERRORS,
    FilePart,
    FileRow,
    TableFormat,
    WrongFileError,
    check_columns,
    is_gzipped,
    is_number,
    is_utf8,
    open_bytes,
    read_budget,
)
from shared.storage import open_file, retry_transient

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST = float(np.finfo(np.float32).max)
_SNIFFED_ROWS = 6


class CsvFiles(TableFormat):
    """What is particular to CSV: it cannot be read from its middle, where a line break may be part of a text."""

    suffixes = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
    table_suffixes = (".csv", ".csv.gz")

    def header(self, path: Path) -> list[str]:
        """Names in the first line."""
        return list(check_columns(_read_header(path)[0]))

    def parts(self, path: Path) -> list[FilePart]:
        """The whole file."""
        return [FilePart(path, 0, sys.maxsize, retry_transient(path.stat).st_size)]

    def rows(self, part: FilePart, names: Sequence[str], most: int) -> Iterator[FileRow]:
        """Rows of the file; empty lines are passed over."""
        header = self.header(part.path)
        numbers = {name: number for number, name in reversed(list(enumerate(header)))}  # of two the first
        if lacking := [name for name in names if name not in numbers]:
            raise WrongFileError(f"has no column {' and no column '.join(lacking)}")
        places = [numbers[name] for name in names]
        # A longer cell ends the reading: it is a quote that is not closed, more often than a text.
        for line, cells in _read_cells(part.path, max(most, read_budget().cell_bytes)):
            if len(cells) == len(header):
                yield FileRow(line, [cells[place] for place in places])
            else:
                yield FileRow(line, fault=f"has {len(cells)} cells, but there are {len(header)} columns")

    def place(self, part: FilePart, at: int) -> str:
        """The line on which a row ends."""
        return str(at)

    def blocks(
        self, path: Path, types: Mapping[str, pa.DataType], missing: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a file, a megabyte at a time; the columns are converted on all cores."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        left = (budget := read_budget()).unpacked_bytes
        try:
            blocks = arrow_csv.open_csv(
                pa.input_stream(open_file(path), compression="gzip" if is_gzipped(path) else None),
                read_options=arrow_csv.ReadOptions(block_size=read_budget().header_bytes),
                # Or a block would end at any line break, those in cells included.
                parse_options=arrow_csv.ParseOptions(delimiter=_read_header(path)[1], newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[*arrow_csv.ConvertOptions().null_values, *missing, *(f" {text}" for text in missing)],
                ),
            )
            for block in blocks:
                left -= block.nbytes if is_gzipped(path) else 0
                if left < 0:
                    most = f"{budget.unpacked_bytes:,} bytes; {budget.how_to_raise('unpacked_bytes')}"
                    raise WrongFileError(f"cannot be read: it unpacks to more than {most}")  # beside
                yield block
        except (pa.ArrowException, OSError) as error:
            if str(error) == "Empty CSV file":
                return
            # One line of what Arrow says, which is neither line nor column: the rest is its own source's lines.
            raise WrongFileError(
                f"cannot be read: {_find_fault(path, types, missing) or str(error).splitlines()[0]}"
            ) from error

    def row_place(self, path: Path, row: int) -> str:
        """Line of a row: read again, because empty lines and lines in quotes shift the count."""
        lines = (line for line, _ in _read_cells(path, read_budget().header_bytes))
        return f"{path}:{next(islice(lines, row, None), row + 2)}"


def _read_header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns and the separator: that which divides the first rows alike, into most cells.

    Empty lines before them are passed over.
    """
    try:
        with _open_text(path) as file:
            text = file.read(most := read_budget().header_bytes)
        text = (text if len(text) < most else text.rpartition("\n")[0] or text).lstrip("\r\n")
        found = [(*_first_cells(text, mark), mark) for mark in ",;\t"]
    except (csv.Error, *READ_ERRORS) as error:
        raise WrongFileError(f"cannot be read: {error}") from error
    _, _, names, mark = max(found, key=lambda one: one[:2])
    if any(name.strip() for name in names):
        return names, mark
    raise WrongFileError("is empty: a line with the columns' names is needed")


def _first_cells(text: str, mark: str) -> tuple[bool, int, list[str]]:
    """Return whether a separator divides most of the first rows alike, the number of cells, and the first row."""
    rows: list[list[str]] = []
    with suppress(csv.Error):  # a cell without an end is reported when it is read
        rows.extend(filter(None, islice(csv.reader(io.StringIO(text, newline=""), delimiter=mark), _SNIFFED_ROWS)))
    names, others = (rows[0], rows[1:]) if rows else ([], [])
    return 2 * sum(len(row) == len(names) for row in others) >= len(others), len(names), names


def _read_cells(path: Path, most: int) -> Iterator[tuple[int, list[str]]]:
    """Cells of each row that has some, of ``most`` bytes each at most, with the number of the line that it ends on."""
    csv.field_size_limit(most)
    with _open_text(path) as file:
        reader = csv.reader(file, delimiter=_read_header(path)[1])
        began = 0
        try:
            rows = filter(None, reader)
            next(rows)
            began = reader.line_num
            for cells in rows:
                yield reader.line_num, cells
                began = reader.line_num
        except (csv.Error, *READ_ERRORS) as error:
            raise WrongFileError(f"cannot be read after line {began}: {error}") from error


def _find_fault(path: Path, types: Mapping[str, pa.DataType], missing: Sequence[str]) -> str:
    """Look for the first row that is not what its columns hold, cell by cell: slow, but it knows lines and columns."""
    header, before = _read_header(path)[0], 1
    for line, cells in _read_cells(path, read_budget().header_bytes):
        if len(cells) != len(header):
            if any("\n" in cell for cell in cells):
                return f"{path}:{before + 1}: {len(cells)} cells, but {len(header)} columns: a quote is not closed"
            return f"{path}:{line}: {len(cells)} cells, but {len(header)} columns"
        before = line
        row = dict(zip(header, cells, strict=True))
        for name, kind in types.items():
            if row[name] not in missing and (fault := _cell_fault(row[name], str(kind) == "string")):
                return f"{path}:{line}: column {name!r} {fault}"
    return ""


def _cell_fault(cell: str, is_text: bool) -> str:  # noqa: FBT001  # of two kinds of columns
    """What is wrong with a cell; nothing if it is empty."""
    if is_text:
        return "" if is_utf8(cell) else "is not text in UTF-8"
    text = cell.strip()
    if text.lower() in ("", "nan", "na", "n/a", "null", "#n/a"):
        return ""
    if not is_number(text):
        return f"is {cell!r:.60}, not a number (if it means a missing one, name it in missing_values)"
    return "" if abs(float(text)) <= _LARGEST else f"is {cell!r:.60}, too large for 32 bits"


def _open_text(path: Path) -> IO[str]:
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="surrogateescape", newline="")

"""CSV with texts: a line of names, then rows whose cells may hold line breaks in quotes; plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from shared.data.text.rows import Columns, Part, Row, WrongFileError, need

HEADER_BYTES = 2**20
CELL_BYTES = 2**17
"""That any cell may have, be it one of texts or not."""


class CsvRows:
    """What is particular to CSV: it cannot be read from its middle, where a line break may be part of a text.

    Args:
        most: bytes that a text may have.
    """

    suffixes: tuple[str, ...] = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

    def __init__(self, most: int) -> None:
        csv.field_size_limit(max(most, CELL_BYTES))

    def check(self, path: Path, columns: Columns) -> None:
        """See that the first line has the columns."""
        need(path, self._header(path)[0], columns)

    def parts(self, path: Path) -> list[Part]:
        """The whole file."""
        return [Part(path, 0, sys.maxsize, path.stat().st_size)]

    def rows(self, part: Part, columns: Columns, most: int) -> Iterator[Row]:
        """Rows of the file; empty lines are passed over."""
        del most  # a longer cell ends the reading: it is a quote that is not closed, more often than a text
        header, delimiter = self._header(part.path)
        if lacking := [name for name in columns if name not in header]:
            raise WrongFileError(f"has no column {' and no column '.join(lacking)}")
        text, label = header.index(columns.text), header.index(columns.label) if columns.label else -1
        with _open(part.path) as file:
            reader = csv.reader(file, delimiter=delimiter)
            try:
                next(reader)
                for cells in reader:
                    if len(cells) == len(header):
                        yield Row(reader.line_num, cells[text], cells[label])
                    elif cells:
                        yield Row(reader.line_num, fault=f"has {len(cells)} cells, but there are {len(header)} columns")
            except (csv.Error, OSError, EOFError, zlib.error) as error:
                raise WrongFileError(f"cannot be read after line {reader.line_num}: {error}") from error

    def place(self, part: Part, at: int) -> str:
        """The line on which a row ends."""
        del part
        return str(at)

    def _header(self, path: Path) -> tuple[list[str], str]:
        """Names of the columns, and the separator: whichever comes most often in the first line."""
        try:
            with _open(path) as file:
                line = file.readline(HEADER_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise WrongFileError(f"cannot be read: {error}") from error
        if not line.strip():
            raise WrongFileError("is empty: a line with the columns' names is needed")
        delimiter = max(",;\t", key=line.count)
        return next(csv.reader([line], delimiter=delimiter)), delimiter


def _open(path: Path) -> IO[str]:
    """Text of a file; bytes that are not UTF-8 come as surrogates, so that they spoil their own row alone."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="")
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")

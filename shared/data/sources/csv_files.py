"""Tables as CSV: with a line of names, separated by commas, semicolons or tabs, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from shared.data.sources.source import Request
from shared.data.sources.table import Columns, Table, WrongFileError, open_table, release_memory

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES = 2**20
"""Read at a time; a line must be shorter."""

LARGEST = float(np.finfo(np.float32).max)


def open_csv(request: Request) -> Table:
    """Read the tables of a folder; see ``open_table``."""
    return open_table(request, CsvFiles())


class CsvFiles:
    """What is particular to CSV."""

    suffixes: tuple[str, ...] = (".csv", ".csv.gz")

    def header(self, path: Path) -> list[str]:
        """Names in the first line."""
        return self._dialect(path)[0]

    def check(self, path: Path, columns: Columns) -> None:
        """Do nothing: a CSV file says nothing about types."""

    def blocks(self, path: Path, columns: Columns, task: str) -> Iterator[tuple[npt.NDArray[np.float32], pa.Array]]:
        """Rows of a file, a megabyte at a time; the columns are converted on all cores."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        regression = task == "regression"
        types = dict.fromkeys(columns.features, pa.float32())
        types[columns.target] = pa.float64() if regression else pa.string()
        try:
            reader = arrow_csv.open_csv(
                path,
                read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(delimiter=self._dialect(path)[1]),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=types, include_columns=[*columns.features, columns.target]
                ),
            )
            for block in reader:
                yield matrix(block, len(columns.features)), _target(block.column(len(columns.features)), regression)
        except (pa.ArrowException, OSError) as error:
            if str(error) == "Empty CSV file":
                return
            found = self._first_fault(path, columns, regression=regression, missing=False)
            # One line of what Arrow says: the rest is its own source's lines.
            raise WrongFileError(f"cannot be read: {found or str(error).splitlines()[0]}") from error

    def close(self) -> None:
        """Give back the memory that reading took."""
        release_memory()

    def place(self, path: Path, columns: Columns, row: int, column: str, *, regression: bool) -> str:
        """Line of a row: read again, because empty lines and lines in quotes shift the count."""
        del column
        found = self._first_fault(path, columns, regression=regression, missing=True)
        return found.partition(": ")[0] if found else f"{path}:{row + 2}"

    def _dialect(self, path: Path) -> tuple[list[str], str]:
        """Names of the columns, and the separator: whichever comes most often in the first line."""
        try:
            with _text(path) as file:
                line = file.readline(BLOCK_BYTES)
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise WrongFileError(f"cannot be read as text in UTF-8: {error}") from error
        if not line.strip():
            raise WrongFileError("is empty: a line with the columns' names is needed")
        delimiter = max(",;\t", key=line.count)
        return next(csv.reader([line], delimiter=delimiter)), delimiter

    def _first_fault(self, path: Path, columns: Columns, *, regression: bool, missing: bool) -> str | None:
        """Look for the first row that cannot be used, cell by cell: slow, but it knows lines and columns.

        Only used when something is wrong already: Arrow says neither line nor column.
        """
        header, delimiter = self._dialect(path)
        with _text(path, errors="replace") as file:
            reader = csv.reader(file, delimiter=delimiter)
            try:
                next(reader)
                for cells in reader:
                    fault = _row_fault(cells, header, columns, regression=regression, missing=missing)
                    if fault:
                        return f"{path}:{reader.line_num}: {fault}"
            except csv.Error as error:
                return f"{path}:{reader.line_num}: {error}"
        return None


def _row_fault(cells: list[str], header: list[str], columns: Columns, *, regression: bool, missing: bool) -> str:
    """What is wrong with a row; an empty line is none."""
    if not cells:
        return ""
    if len(cells) != len(header):
        return f"{len(cells)} cells, but {len(header)} columns"
    of_row = dict(zip(header, cells, strict=True))
    for name in (*columns.features, columns.target):
        if name == columns.target and not regression:
            fault = "is empty" if missing and not of_row[name] else ""
        else:
            fault = _fault(of_row[name], missing=missing)
        if fault:
            return f"column {name!r} {fault}"
    return ""


def matrix(block: pa.RecordBatch, count: int) -> npt.NDArray[np.float32]:
    """The first columns of a block as rows; not a number where one is missing."""
    import pyarrow as pa
    from pyarrow import compute

    rows = np.empty((block.num_rows, count), np.float32)
    for number in range(count):
        column = block.column(number)
        wide = column if column.type == pa.float32() else compute.cast(column, pa.float32(), safe=False)
        rows[:, number] = wide.to_numpy(zero_copy_only=False)
    return rows


def _target(column: pa.Array, regression: bool) -> pa.Array:  # noqa: FBT001  # it is the whole question
    from pyarrow import compute

    # An empty text is a missing one.
    return column if regression else compute.if_else(compute.equal(column, ""), None, column)


def _fault(cell: str, *, missing: bool) -> str:
    """What is wrong with a cell of a column of numbers."""
    text = cell.strip()
    if text.lower() in ("", "nan", "na", "n/a", "null", "#n/a"):
        return "is empty" if missing else ""
    try:
        value = float(text)
    except ValueError:
        return f"is {cell!r:.60}, not a number"
    return "" if math.isfinite(value) and abs(value) <= LARGEST else f"is {cell!r:.60}, too large for 32 bits"


def _text(path: Path, errors: str = "strict") -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")

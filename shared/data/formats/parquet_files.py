"""Parquet, as pandas, Spark, Arrow and DuckDB write it: read from any row group on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.data.formats.file_format import (
    UNIT_BYTES,
    FilePart,
    FileRow,
    TableFormat,
    WrongFileError,
    check_columns,
    group_units,
    one_line,
)
from shared.storage import open_file

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS, _TEXT_ROWS = 2**16, 256
"""Read at a time of numbers, and of texts."""


class ParquetFiles(TableFormat):
    """What is particular to Parquet."""

    suffixes = table_suffixes = (".parquet", ".parq", ".pq")

    def header(self, path: Path) -> list[str]:
        """Names of the columns."""
        return list(check_columns(_read_metadata(path).schema.to_arrow_schema().names))

    def types(self, path: Path) -> Mapping[str, pa.DataType]:
        """Type of each column."""
        return {field.name: field.type for field in _read_metadata(path).schema.to_arrow_schema()}

    def parts(self, path: Path) -> list[FilePart]:
        """Row groups, small ones together."""
        meta = _read_metadata(path)
        sizes = [meta.row_group(number).total_byte_size for number in range(meta.num_row_groups)]
        units = group_units(sizes, UNIT_BYTES)
        return [FilePart(path, unit.start, unit.stop, sum(sizes[unit.start : unit.stop])) for unit in units]

    def rows(self, part: FilePart, names: Sequence[str], most: int) -> Iterator[FileRow]:
        """Rows of some row groups."""
        import pyarrow as pa
        from pyarrow import parquet

        there = _known_metadata(part.path).schema.to_arrow_schema().names
        if lacking := [name for name in names if name not in there]:
            raise WrongFileError(f"has no column {' and no column '.join(lacking)}")
        at = 0
        try:
            # Without pre-buffering a row group, which may be the whole file, is read page by page.
            with (
                open_file(part.path) as content,
                parquet.ParquetFile(content, pre_buffer=False, buffer_size=2**20) as file,
            ):
                groups = range(part.first, part.last)
                for block in file.iter_batches(_TEXT_ROWS, row_groups=groups, columns=list(names), use_threads=False):
                    for cells in zip(*(_texts(block.column(name)) for name in names), strict=True):
                        at += 1
                        yield FileRow(at, cells)
        except (pa.ArrowException, OSError) as error:
            raise WrongFileError(f"cannot be read after row {self.place(part, at)}: {one_line(error)}") from error

    def place(self, part: FilePart, at: int) -> str:
        """Number of a row."""
        meta = _known_metadata(part.path)
        return str(sum(meta.row_group(number).num_rows for number in range(part.first)) + at)

    def blocks(
        self, path: Path, types: Mapping[str, pa.DataType], missing: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a file, 65,536 at a time; the columns are decoded on all cores."""
        import pyarrow as pa
        from pyarrow import parquet

        # the file's numbers are numbers already
        names = list(types)
        try:
            with (
                open_file(path) as content,
                parquet.ParquetFile(
                    content, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True
                ) as file,
            ):
                for block in file.iter_batches(_BLOCK_ROWS, columns=names):
                    yield block.select(names)
        except (pa.ArrowException, OSError) as error:
            raise WrongFileError(f"cannot be read: {one_line(error)}") from error

    def row_place(self, path: Path, row: int) -> str:
        """Number of a row, from 1."""
        return f"{path}: row {row + 1}"


def _read_metadata(path: Path) -> pa.parquet.FileMetaData:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with open_file(path) as content:
            return parquet.read_metadata(content)
    except (pa.ArrowException, OSError) as error:
        raise WrongFileError(f"is not a whole Parquet file: {one_line(error)}") from error


_known_metadata = lru_cache(maxsize=64)(_read_metadata)
"""The same, kept for a file whose parts are read: a place is looked up for every bad row."""


def _texts(column: Any) -> list[Any]:
    """Values of a column; bytes that are not UTF-8 come as surrogates, so that they spoil their own row alone."""
    try:
        found: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        import pyarrow as pa

        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        binary = pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary()
        found = [one and one.decode("utf-8", "surrogateescape") for one in plain.cast(binary).to_pylist()]
    return found

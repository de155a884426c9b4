"""Parquet with texts: read from any row group on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.data.text.documents import UNIT_BYTES
from shared.data.text.rows import Columns, Part, Row, WrongFileError, need
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 256
"""Read at a time."""


class ParquetRows:
    """What is particular to Parquet."""

    suffixes: tuple[str, ...] = (".parquet", ".parq", ".pq")

    def check(self, path: Path, columns: Columns) -> None:
        """See that the columns are there, and of types that are texts and classes."""
        schema = _metadata(path).schema.to_arrow_schema()
        need(path, schema.names, columns)
        wrong = [f"{name} is {schema.field(name).type}" for name in columns if not _fits(schema, name, columns)]
        if wrong:
            raise Refusal(f"{path}: {' and '.join(wrong)}: a text has to be a string, a class a string or an integer.")

    def parts(self, path: Path) -> list[Part]:
        """Row groups, small ones together."""
        meta = _metadata(path)
        sizes = [meta.row_group(number).total_byte_size for number in range(meta.num_row_groups)]
        bounds, filled = [0], 0
        for number, size in enumerate(sizes):
            if filled and filled + size > UNIT_BYTES:
                bounds.append(number)
                filled = 0
            filled += size
        bounds.append(len(sizes))
        return [Part(path, a, b, sum(sizes[a:b])) for a, b in pairwise(bounds)]

    def rows(self, part: Part, columns: Columns, most: int) -> Iterator[Row]:
        """Rows of some row groups."""
        import pyarrow as pa
        from pyarrow import parquet

        del most
        names = _metadata(part.path).schema.to_arrow_schema().names
        if lacking := [name for name in columns if name not in names]:
            raise WrongFileError(f"has no column {' and no column '.join(lacking)}")
        at = 0
        try:
            # Without pre-buffering a row group, which may be the whole file, is read page by page.
            with parquet.ParquetFile(part.path, pre_buffer=False, buffer_size=2**20) as file:
                groups = range(part.first, part.last)
                for block in file.iter_batches(ROWS, row_groups=groups, columns=list(columns), use_threads=False):
                    texts = _texts(block.column(columns.text))
                    labels = block.column(columns.label).to_pylist() if columns.label else texts
                    for text, label in zip(texts, labels, strict=True):
                        at += 1
                        yield Row(at, text, label)
        except (pa.ArrowException, OSError) as error:
            raise WrongFileError(f"cannot be read after row {self.place(part, at)}: {_one_line(error)}") from error

    def place(self, part: Part, at: int) -> str:
        """Number of a row."""
        meta = _metadata(part.path)
        return str(sum(meta.row_group(number).num_rows for number in range(part.first)) + at)


@lru_cache(maxsize=64)
def _metadata(path: Path) -> pa.parquet.FileMetaData:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise WrongFileError(f"is not a whole Parquet file: {_one_line(error)}") from error


def _fits(schema: pa.Schema, name: str, columns: Columns) -> bool:
    from pyarrow import types

    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(kind) or types.is_large_string(kind):
        return True
    return name == columns.label and (types.is_integer(kind) or types.is_boolean(kind))


def _texts(column: Any) -> list[str | None]:
    """Texts of a column; bytes that are not UTF-8 come as surrogates, so that they spoil their own row alone."""
    try:
        found: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        import pyarrow as pa

        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        found = [
            None if one is None else one.decode("utf-8", "surrogateescape")
            for one in plain.cast(
                pa.large_binary() if pa.types.is_large_string(plain.type) else pa.binary()
            ).to_pylist()
        ]
    return found


def _one_line(error: Any) -> str:
    return " ".join(str(error).split())[:200]

"""Tables as Parquet, as pandas, Spark, Arrow and DuckDB write them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.data.sources.csv_files import matrix
from shared.data.sources.source import Request
from shared.data.sources.table import Columns, Table, WrongFileError, open_table, release_memory
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 2**16
"""Read at a time."""


def open_parquet(request: Request) -> Table:
    """Read the tables of a folder; see ``open_table``."""
    return open_table(request, ParquetFiles(request.task))


class ParquetFiles:
    """What is particular to Parquet.

    Args:
        task: ``regression`` asks for a target of numbers.
    """

    suffixes: tuple[str, ...] = (".parquet", ".parq", ".pq")

    def __init__(self, task: str) -> None:
        self._regression = task == "regression"

    def header(self, path: Path) -> list[str]:
        """Names of the columns."""
        return list(self._schema(path).names)

    def check(self, path: Path, columns: Columns) -> None:
        """Refuse features that are not numbers, and a target that is nested or a date."""
        schema = self._schema(path)
        wrong = [f"{name} ({schema.field(name).type})" for name in columns.features if not _is_number(schema, name)]
        if wrong:
            left_out = ",".join(text.rpartition(" (")[0] for text in wrong)
            raise Refusal(
                f"{path}: these columns do not hold plain numbers: {', '.join(wrong)}. Convert them, or leave them out "
                f"with ignore_columns {left_out!r}."
            )
        if not _is_number(schema, columns.target) and (self._regression or not _is_text(schema, columns.target)):
            wanted = "numbers" if self._regression else "numbers or texts"
            raise Refusal(f"{path}: the target {columns.target} is {schema.field(columns.target).type}, not {wanted}.")

    def blocks(self, path: Path, columns: Columns, task: str) -> Iterator[tuple[npt.NDArray[np.float32], pa.Array]]:
        """Rows of a file, 65,536 at a time; the columns are decoded on all cores."""
        import pyarrow as pa
        from pyarrow import compute, parquet

        del task
        wanted = [*columns.features, columns.target]
        try:
            # Without pre-buffering a row group, which may be the whole file, is read page by page.
            with parquet.ParquetFile(
                path, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True
            ) as file:
                for block in file.iter_batches(ROWS, columns=wanted):
                    in_order = block.select(wanted)
                    target = in_order.column(len(columns.features))
                    if self._regression:
                        target = compute.cast(target, pa.float64(), safe=False)
                    elif pa.types.is_dictionary(target.type):
                        target = target.dictionary_decode()
                    yield matrix(in_order, len(columns.features)), _without_holes(target)
        except (pa.ArrowException, OSError) as error:
            raise WrongFileError(f"cannot be read: {_one_line(error)}") from error

    def close(self) -> None:
        """Give back the memory that reading took."""
        release_memory()

    def place(self, path: Path, columns: Columns, row: int, column: str, *, regression: bool) -> str:
        """Number of a row, from 1."""
        del columns, column, regression
        return f"{path}: row {row + 1}"

    def _schema(self, path: Path) -> pa.Schema:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            return parquet.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise WrongFileError(f"is not a whole Parquet file: {_one_line(error)}") from error


def _is_number(schema: pa.Schema, name: str) -> bool:
    from pyarrow import types

    kind = schema.field(name).type
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _is_text(schema: pa.Schema, name: str) -> bool:
    from pyarrow import types

    kind = schema.field(name).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)


def _without_holes(target: pa.Array) -> pa.Array:
    """The target with null for an empty text or for what is not a number, too."""
    from pyarrow import compute, types

    if types.is_floating(target.type):
        return compute.if_else(compute.is_nan(target), None, target)
    if types.is_string(target.type) or types.is_large_string(target.type):
        return compute.if_else(compute.equal(target, ""), None, target)
    return target


def _one_line(error: Any) -> str:
    return " ".join(str(error).split())[:200]

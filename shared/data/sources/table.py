"""Tables with a column to predict: read once, block by block, into spools; then any row by number.

What one format knows is in `formats/`; what holds for all is here. Memory holds a block of rows, however many there
are.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.index import Array
from shared.data.formats.file_format import (
    TableFormat,
    WrongFileError,
    find_file_fault,
    find_name_fault,
    is_number,
    is_utf8,
    read_budget,
)
from shared.data.sources.table_columns import TableColumns, check_types, choose_columns, find_categories
from shared.data.sources.table_rows import (
    NumberTable,
    missing_texts,
    refuse_local_numbers,
    refuse_spellings,
    sort_texts,
)
from shared.data.write.request import SourceRequest, join_names, list_names
from shared.data.write.splits import BLOCK_ROWS, count_labels
from shared.data.write.spool import Spool
from shared.distributed import Refusal

if TYPE_CHECKING:
    import pyarrow as pa

_NOTE_SECONDS = 10.0
_RISING_ROWS = 10
"""Of whole numbers, each above the one before, that are called an identifier."""
_STEPS = 256
"""A column of numbers whose least and largest are fewer steps of float32 apart is refused."""


def open_table(request: SourceRequest, form: TableFormat) -> NumberTable:
    """Read all files of a folder, in the order of their names, or one file.

    Raises:
        Refusal: if there is none, if a column is missing or of no use, or if a value is missing or impossible.
    """
    request.refuse_image_size()
    if request.folder is None or not request.folder.is_file():
        request.needed_folder()
    _, files = request.find_files(form.table_suffixes, hidden="._")
    scan = _Scan(request, form)
    for path in files:
        scan.add(path)
    return scan.table(files)


class _Scan:
    """Reads files one after another into a spool."""

    def __init__(self, request: SourceRequest, form: TableFormat) -> None:
        self._request, self._form = request, form
        self._most = read_budget().classes  # fewer than 16 bits can number
        self._regression = request.task == "regression"
        self._columns = TableColumns((), request.target)  # until the first file decides on the features
        self._missing_texts = missing_texts(request.missing_values)
        self._absent = [float(text) for text in request.missing_values if is_number(text)]
        self._values: dict[str, dict[str, int]] = {}
        self._crowded: dict[str, int] = {}
        self._rising = self._filled = np.ones(0, bool)
        self._low = self._high = np.zeros(0)
        self._last = np.zeros(0, np.float32)
        self._spool = Spool((0,), "float32")
        self._files: list[tuple[str, int]] = []
        self._targets = Spool((), "float64" if self._regression else "int16")
        self._codes: dict[str, int] = {}
        self._missing = 0
        self._noted = time.monotonic()

    def add(self, path: Path) -> None:
        """Read a file; if it cannot be used, what it gave so far is forgotten and it is reported."""
        rows = self._spool.rows
        try:
            self._choose(path)
            before, features = 0, len(self._columns.features)
            for block in self._form.blocks(path, self._types(), sorted(self._missing_texts)):
                x, target = self._matrix(block), self._target(block.column(features))
                self._add(path, before, x, target)
                before += len(x)
                self._note(path)
        except WrongFileError as error:
            self._spool.cut(rows)
            self._targets.cut(rows)
            self._request.bad.report(str(path.relative_to(self._request.bad.folder)), str(error))
        else:
            self._files.append((str(path), rows))

    def table(self, files: Sequence[Path]) -> NumberTable:
        """Everything that was read.

        Raises:
            Refusal: if that is nothing.
        """
        import pyarrow as pa

        if not self._spool.rows:
            found = self._request.bad.found
            empty = [name for name, filled in zip(self._columns.features, self._filled, strict=True) if not filled]
            why = f"{found[0].path} {found[0].reason}" if found else "there is no row with all its values"
            if empty and self._missing and not found:
                why = f"empty in all rows: {list_names(empty)}"
            raise Refusal(f"{self._request.folder}: none of its {len(files)} files gives a row; {why}.")
        if self._missing:
            what = "what is predicted" if self._request.impute_missing else "a value"
            self._request.note(f"{self._missing:,} rows lack {what} and are left out")
        self._refuse_columns()
        self._note_identifiers()
        classes = () if self._regression else _sort_classes(self._codes, self._targets)
        pa.default_memory_pool().release_unused()  # what Arrow holds for the next block goes back to the system
        return NumberTable(
            spool=self._spool,
            files=tuple(self._files),
            labels=self._targets,
            classes=classes,
            array=Array(self._spool.shape, "float32"),
            task=self._request.task,
            columns=self._columns.features,
            values={name: tuple(codes) for name, codes in self._values.items()},
            crowded=self._crowded,
            missing=tuple(sorted(self._missing_texts)),
            imputes=self._request.impute_missing,
            ignored=self._request.ignore_columns,
            note=self._request.note,
        )

    def _refuse_columns(self) -> None:
        """Refuse values that training would take for others: other spellings or notations, and what 32 bits lose."""
        refuse_spellings(self._columns.target, self._codes)
        for name, codes in self._values.items():
            refuse_spellings(name, codes)
            if name not in self._request.categorical_columns:
                refuse_local_numbers(name, codes)
        for name, low, high in zip(self._columns.features, self._low.tolist(), self._high.tolist(), strict=True):
            steps = (high - low) / np.spacing(np.float32(max(abs(low), abs(high)))) if low < high else _STEPS
            if steps < _STEPS:
                raise Refusal(
                    f"column {name!r} reaches from {low:.17g} to {high:.17g}, where a model's 32 bits tell only "
                    f"{int(steps) + 1} values apart. Subtract a constant near them, or leave the column out with "
                    f"ignore_columns {join_names((*self._request.ignore_columns, name))!r}."
                )

    def _note_identifiers(self) -> None:
        names = [
            name
            for name, rises in zip(self._columns.features, self._rising, strict=True)
            if rises and name not in self._values
        ]
        if names and self._spool.rows >= _RISING_ROWS:
            self._request.note(
                f"whole numbers that rise from row to row, as identifiers do: {list_names(names)}; leave them out with "
                f"ignore_columns {join_names((*self._request.ignore_columns, *names))!r} if they are"
            )

    def _choose(self, path: Path) -> None:
        """Let the first file decide on the columns, and see that the others have them too."""
        if fault := find_file_fault(path) or find_name_fault(path):
            raise WrongFileError(fault)
        header = self._form.header(path)
        if not is_utf8("".join(header)):
            raise WrongFileError("cannot be read as text in UTF-8: the names of its columns are not")
        if not self._columns.features:
            columns = choose_columns(header, self._request, path)
            undecided = [name for name in columns.features if name not in columns.categories]
            found = find_categories(self._form, path, undecided, self._missing_texts)
            self._columns = replace(columns, categories=columns.categories | found)
            count = len(columns.features)
            self._spool, self._values = Spool((count,), "float32"), {name: {} for name in self._columns.categories}
            self._rising, self._last = np.ones(count, bool), np.full(count, -np.inf, np.float32)
            self._filled, self._low, self._high = np.zeros(count, bool), np.full(count, np.inf), np.full(count, -np.inf)
        inside = path.relative_to(self._request.bad.folder).parts[:-1]
        if lost := [part for part in inside if "=" in part and part.partition("=")[0] not in header]:
            raise Refusal(
                f"{path}: the folders {list_names(lost)} hold values of columns that are not in the files, as "
                "pandas' partition_cols and Spark write them. Write the table without partitions."
            )
        there, wanted = Counter(header), (*self._columns.features, self._columns.target)
        if lacking := [name for name in wanted if name not in there]:
            raise WrongFileError(f"lacks columns that the files before it have: {list_names(lacking)}")
        if twice := [name for name in wanted if there[name] > 1]:
            raise WrongFileError(f"has more than one column called {list_names(twice)}")
        check_types(path, self._form.types(path), self._columns, self._request.task)

    def _types(self) -> dict[str, pa.DataType]:
        """What texts in the columns become, in order."""
        import pyarrow as pa

        target = pa.float64() if self._regression else pa.string()
        kinds = {name: pa.string() if name in self._values else pa.float64() for name in self._columns.features}
        return {**kinds, self._columns.target: target}

    def _matrix(self, block: pa.RecordBatch) -> npt.NDArray[np.float32]:
        """The features of a block as rows; not a number where one is missing."""
        rows = np.empty((block.num_rows, len(self._columns.features)), np.float32)
        for number, name in enumerate(self._columns.features):
            column = block.column(number)
            if name in self._values:
                rows[:, number] = self._codes_of(name, column)
                continue
            numbers = _numbers(column)
            if self._absent:
                numbers = np.where(np.isin(numbers, self._absent), np.nan, numbers)
            if len(numbers):
                self._low[number] = np.fmin(self._low[number], np.fmin.reduce(numbers))
                self._high[number] = np.fmax(self._high[number], np.fmax.reduce(numbers))
            rows[:, number] = numbers
        return rows

    def _codes_of(self, name: str, column: pa.Array) -> npt.NDArray[Any]:
        """Numbers of a category's values, in the order in which they first came."""
        known = self._values[name]
        try:
            found = _plain(column).dictionary_encode()
            texts = [_class_name(value) for value in found.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise WrongFileError(f"cannot be used: column {name!r} is not text in UTF-8") from error
        if name in self._crowded or len(known) + len(texts) > self._most:
            self._crowded[name] = self._most
            texts = ["other"] * len(texts)  # they no longer matter: the column will be refused
        codes = [np.nan if t.strip() in self._missing_texts else known.setdefault(t, len(known)) for t in texts]
        return np.array([*codes, np.nan])[found.indices.fill_null(len(codes)).to_numpy(zero_copy_only=False)]

    def _target(self, column: pa.Array) -> pa.Array:
        """The target with null for an empty text, for what is not a number, and for what stands for a missing value."""
        import pyarrow as pa
        from pyarrow import compute, types

        column = _plain(column)
        if self._regression or types.is_float16(column.type):
            column = compute.cast(column, pa.float64(), safe=False)
        if types.is_floating(column.type):
            column = compute.if_else(compute.is_nan(column), None, column)
        if types.is_string(column.type) or types.is_large_string(column.type):
            missing = pa.array(sorted(self._missing_texts), column.type)
            return compute.if_else(compute.is_in(compute.ascii_trim_whitespace(column), missing), None, column)
        if self._absent:
            same = compute.is_in(compute.cast(column, pa.float64(), safe=False), pa.array(self._absent))
            column = compute.if_else(same, None, column)
        return column

    def _add(self, path: Path, before: int, x: npt.NDArray[np.float32], target: pa.Array) -> None:
        missing = target.is_null().to_numpy(zero_copy_only=False)
        self._filled |= ~np.isnan(x).all(0)
        if not self._request.impute_missing:
            missing = missing | np.isnan(x).any(1)
        if missing.any():
            if not (self._request.skip_missing or self._request.impute_missing):
                self._refuse_missing(path, before, x, int(missing.argmax()))
            self._missing += int(missing.sum())
            x, target = x[~missing], target.filter(~missing)
        y = target.to_numpy(zero_copy_only=False) if self._regression else self._encode(target)
        finite = ~np.isinf(x).any(1) & np.isfinite(y)
        if not finite.all():
            kept = np.flatnonzero(~missing)
            row = int(finite.argmin())
            place = self._form.row_place(path, before + int(kept[row]))
            column = self._column(np.isinf(x[row]))
            raise WrongFileError(f"cannot be used: {place}: column {column} is not a finite number of 32 bits")
        if len(x):
            self._rising &= (np.diff(x, axis=0, prepend=self._last[None]) > 0).all(0) & (np.trunc(x) == x).all(0)
            self._last = x[-1]
        self._spool.append(x)
        self._targets.append(y)

    def _refuse_missing(self, path: Path, before: int, x: npt.NDArray[np.float32], row: int) -> None:
        raise Refusal(
            f"{self._form.row_place(path, before + row)}: column {self._column(np.isnan(x[row]))} is empty, or holds "
            "what stands for missing, as NA does (missing_values !NA makes it a value). Fill it in, leave out rows "
            "that lack a value with on_missing skip, or let the model know with on_missing impute."
        )

    def _column(self, wrong: npt.NDArray[np.bool_]) -> str:
        """The first feature of a row that is wrong, else the target, which then is."""
        return repr(self._columns.features[int(wrong.argmax())] if wrong.any() else self._columns.target)

    def _encode(self, target: pa.Array) -> npt.NDArray[np.int16]:
        """Numbers of the classes, in the order in which they first came."""
        found = target.dictionary_encode()
        try:
            names = [_class_name(value) for value in found.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise WrongFileError(f"cannot be used: column {self._columns.target!r} is not text in UTF-8") from error
        codes = [self._codes.setdefault(name, len(self._codes)) for name in names]
        if len(codes) > self._most or len(self._codes) > self._most:
            raise Refusal(
                f"column {self._request.target!r} has more than {self._most:,} different values, too many for "
                f"classes: {list_names(list(self._codes), 3)}. For numbers choose task regression; "
                f"{read_budget().how_to_raise('classes')}."
            )
        numbers = found.indices.to_numpy(zero_copy_only=False)
        return np.array(codes, np.int16)[numbers] if codes else np.empty(0, np.int16)

    def _note(self, path: Path) -> None:
        if time.monotonic() - self._noted >= _NOTE_SECONDS:
            self._noted = time.monotonic()
            self._request.note(f"read {self._spool.rows:,} rows, now in {path.name}")


def _numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column as numbers; not a number where one is missing."""
    import pyarrow as pa
    from pyarrow import compute

    wide = column if column.type == pa.float64() else compute.cast(column, pa.float64(), safe=False)
    found: npt.NDArray[np.float64] = wide.to_numpy(zero_copy_only=False)
    return found


def _plain(column: pa.Array) -> pa.Array:
    """A column without a dictionary of its own."""
    from pyarrow import types

    return column.dictionary_decode() if types.is_dictionary(column.type) else column


_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0+", re.ASCII)


def _class_name(value: object) -> str:
    """Return the name of a class: a whole number without a fraction, whatever its type, else the text of the value."""
    if isinstance(value, str) and (whole := _WHOLE.fullmatch(value)):
        return whole[1]
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _sort_classes(codes: dict[str, int], targets: Spool) -> tuple[str, ...]:
    """Classes in ascending order, as numbers if all are whole numbers, else as text; their codes become labels."""
    seen = count_labels(targets, len(codes))
    classes = sort_texts([name for name, code in codes.items() if seen[code]])  # a file left out may have brought more
    labels = np.zeros(len(codes), np.int16)
    labels[[codes[name] for name in classes]] = np.arange(len(classes))
    for first in range(0, len(targets), BLOCK_ROWS):
        targets.put(first, labels[targets[first : first + BLOCK_ROWS]])
    return classes

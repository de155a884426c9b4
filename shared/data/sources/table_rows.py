"""Rows of a table as they were read, and as they are written: what stands for categories and for missing numbers.

What is learnt (values of a category, means) is learnt from the train split alone. Every node reads the whole table in
the same order, so all of them learn the same.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data.dataset.encodings import TableColumn, TableEncoding
from shared.data.dataset.index import Array
from shared.data.dataset.order import RowNumbers
from shared.data.formats.file_format import is_number
from shared.data.write.request import BadFiles, ItemSource, join_names, list_names
from shared.data.write.spool import Spool
from shared.distributed import Refusal

MOST_VALUES = 255
"""Of a category that are told apart: a code that a network gets in 16 bits (bfloat16) is exact up to 256."""

_IDENTIFIER_ROWS = 10
"""In fewer rows all values may differ by chance."""

_LEARNT_NUMBERS = 2**20
"""Looked at together: 8 MiB."""

MISSING_TEXTS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Cells that are missing: those of pandas.read_csv, with which users read the rows that they have predicted."""

_LOCAL_NUMBER = re.compile(r"\s*[+-]?(\d+,\d+|\d{1,3}([.,'\u00a0\u202f ]\d{3})+([.,]\d+)?)\s*", re.ASCII)
"""A number with a decimal comma, or with separators of thousands."""


def missing_texts(named: Iterable[str]) -> frozenset[str]:
    """Return the cells that are missing: those of pandas and those that are named; `!NA` makes NA a value."""
    values = {text for text in named if text.startswith("!")}
    return frozenset({*MISSING_TEXTS, *named} - values - {text[1:] for text in values})


def spelling_key(text: str) -> str:
    """Return the same key for spellings of one value, as a saved model compares them (`raw_rows`).

    Those are 1, 1.0 and 01, true and True, a text with spaces around it, and é as one character or two.
    """
    text = unicodedata.normalize("NFC", text).strip()
    if text.lower() in ("true", "false"):
        return text.lower()
    return repr(float(text)) if is_number(text) and math.isfinite(float(text)) else text


def refuse_spellings(column: str, texts: Iterable[str]) -> None:
    """Refuse two spellings of one value in a column.

    Raises:
        Refusal: with both.
    """
    found: dict[str, str] = {}
    for text in texts:
        if (other := found.setdefault(spelling_key(text), text)) != text:
            raise Refusal(f"column {column!r} holds {other!r} and {text!r}: spellings of one value. Write it one way.")


def refuse_local_numbers(column: str, texts: Iterable[str]) -> None:
    """Refuse a column of texts that are all numbers in another notation.

    Raises:
        Refusal: with the first.
    """
    texts = [text for text in texts if text]
    if texts and all(map(_LOCAL_NUMBER.fullmatch, texts)):
        raise Refusal(
            f"column {column!r} holds numbers with a decimal comma or with separators of thousands, such as "
            f"{texts[0]!r}. Write them as 1234.5 (pandas.read_csv has decimal and thousands), or name the column in "
            "categorical_columns if they are categories."
        )


@dataclass(frozen=True, kw_only=True)
class NumberTable(ItemSource):
    """Rows of numbers, float32, with a class or a target value each; and each file with the number of its first row.

    Of a category, `values` has the text of each number in the `spool`; what is missing is not a number. `ignored` are
    the columns that were left out on request.
    """

    spool: Spool
    files: tuple[tuple[str, int], ...]
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    crowded: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    imputes: bool = False
    ignored: tuple[str, ...] = ()
    note: Callable[[str], None] = lambda _: None

    def where(self, item: int) -> str:
        """File of a row."""
        return next(path for path, first in reversed(self.files) if first <= item)

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Rows by number."""
        # the files were checked when they were read
        return self.spool[items]

    def encoded(self, train: Spool) -> EncodedTable:
        """The table with codes for its categories and with what is missing filled in.

        Raises:
            Refusal: if a column of texts has too many values for a category, or none is left to learn from.
        """
        learnt = _learn(self, train)
        self._refuse_crowded(learnt)
        table = TableEncoding(
            tuple(column for column in map(learnt.column, range(len(self.columns))) if column), self.missing
        )
        if not table.columns:
            raise Refusal(f"all columns are empty in train: {list_names(self.columns)}. Nothing is left.")
        self._describe(table, learnt)
        return EncodedTable(
            labels=self.labels,
            classes=self.classes,
            array=Array((len(table.features),), "float32"),
            task=self.task,
            columns=table.features,
            table=table,
            source=self,
        )

    def _refuse_crowded(self, learnt: _Learnt) -> None:
        found = {name: f"more than {most:,} different values" for name, most in self.crowded.items()}
        for number, counts in learnt.counts.items():
            name, different = self.columns[number], int(np.count_nonzero(counts))
            if different == counts.sum() >= _IDENTIFIER_ROWS:
                found.setdefault(name, f"all {different:,} values in train differ: an identifier")
            elif different + bool(learnt.missing[number]) > MOST_VALUES:
                found.setdefault(name, f"{different:,} different values in train")
        if found:
            shown = ", ".join(f"{name} ({why})" for name, why in found.items())
            raise Refusal(
                f"columns that cannot be categories, of which {MOST_VALUES} values are told apart: {shown}. Leave them "
                f"out with ignore_columns {join_names((*self.ignored, *found))!r}, or put rare values together."
            )

    def _describe(self, table: TableEncoding, learnt: _Learnt) -> None:
        """Say which column was taken for what."""
        categories = [f"{c.name} ({len(c.values)})" for c in table.columns if c.values is not None]
        numbers = [c.name for c in table.columns if c.values is None]
        self.note(f"numbers: {list_names(numbers, 20)}; categories: {list_names(categories, 20)}")
        for number, name in enumerate(self.columns):
            if learnt.missing[number] == learnt.rows:
                self.note(f"column {name!r} is empty in train and is left out")
            elif learnt.missing[number] and name not in self.values:
                self.note(
                    f"column {name!r} is empty in {learnt.missing[number]:,} of {learnt.rows:,} rows of train: they "
                    f"get its mean {learnt.fill(number):g}, and the feature '{name} is missing' says so"
                )
            elif learnt.missing[number]:
                self.note(f"column {name!r} is empty in {learnt.missing[number]:,} of {learnt.rows:,} rows of train")


@dataclass(frozen=True, kw_only=True)
class EncodedTable(ItemSource):
    """The rows of a table as its `table` encodes them."""

    source: NumberTable

    def where(self, item: int) -> str:
        """File of a row."""
        return self.source.where(item)

    def read(self, items: RowNumbers, bad: BadFiles) -> npt.NDArray[Any]:
        """Rows by number."""
        assert self.table is not None  # noqa: S101  # it is made with one
        raw = self.source.read(items, bad)
        if self.columns == self.source.columns and not self.source.values and not self.source.imputes:
            return raw
        places = {name: number for number, name in enumerate(self.source.columns)}
        features = [self._feature(raw[:, places[column.name]], column) for column in self.table.columns]
        marks = [np.isnan(raw[:, places[column.name]]) for column in self.table.columns if column.marked]
        return np.stack([*features, *marks], axis=1, dtype=np.float32, casting="unsafe")

    def _feature(self, raw: npt.NDArray[Any], column: TableColumn) -> npt.NDArray[Any]:
        if column.values is None:
            return raw if column.fill is None else np.where(np.isnan(raw), np.float32(column.fill), raw)
        codes = {text: code for code, text in enumerate(column.values, 1)}
        # What is missing comes last; a text that train has not is 0.
        known = np.array([codes.get(text, 0) for text in (*self.source.values[column.name], "")], np.float32)
        numbers = np.where(np.isnan(raw), len(known) - 1, raw).astype(np.int64)
        return known[numbers]


@dataclass(frozen=True)
class _Learnt:
    """What is in the train split: missing cells and sums of all columns; of a category, the count of each value."""

    source: NumberTable
    rows: int
    missing: npt.NDArray[np.int64]
    sums: npt.NDArray[np.float64]
    counts: Mapping[int, npt.NDArray[np.int64]]

    def fill(self, number: int) -> float:
        """Mean of a column of numbers, 32 bits as its cells."""
        return float(np.float32(self.sums[number] / (self.rows - self.missing[number])))

    def column(self, number: int) -> TableColumn | None:
        """How a column is encoded; None for one that is empty."""
        name, missing = self.source.columns[number], int(self.missing[number])
        if missing == self.rows:
            return None
        if number not in self.counts:
            return TableColumn(name, fill=self.fill(number) if self.source.imputes else None, marked=missing > 0)
        texts = self.source.values[name]
        found = [texts[code] for code in np.flatnonzero(self.counts[number]).tolist()]
        return TableColumn(name, values=(*([""] if missing else []), *sort_texts(found)))


def _learn(source: NumberTable, train: Spool) -> _Learnt:
    """Look at all rows of train, in the order of the table, so that sums come out the same wherever they are made."""
    count = len(source.columns)
    places = {n: len(source.values[name]) for n, name in enumerate(source.columns) if name in source.values}
    missing, sums = np.zeros(count, np.int64), np.zeros(count)
    counts = {number: np.zeros(size, np.int64) for number, size in places.items()}
    if not source.values and not source.imputes:  # nothing to learn: plain numbers, none of which is missing
        return _Learnt(source, len(train), missing, sums, counts)
    trains = np.zeros(len(source.spool), bool)
    for items in train.blocks(_LEARNT_NUMBERS):
        trains[items] = True
    step = max(1, _LEARNT_NUMBERS // count)
    for number, block in enumerate(source.spool.blocks(step)):
        part = block[trains[number * step : (number + 1) * step]]
        lacking = np.isnan(part)
        missing += lacking.sum(0)
        sums += np.where(lacking, 0, part).sum(0, dtype=np.float64)
        for place, total in counts.items():
            codes = part[~lacking[:, place], place].astype(np.int64)
            np.add(total, np.bincount(codes, minlength=len(total)), out=total)
    return _Learnt(source, len(train), missing, sums, counts)


def sort_texts(texts: list[str]) -> tuple[str, ...]:
    """In ascending order: as numbers if all are whole numbers, else as text."""
    numbers = all(text.removeprefix("-").isdecimal() for text in texts)
    return tuple(sorted(texts, key=int) if numbers else sorted(texts))

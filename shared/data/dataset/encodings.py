"""What the numbers of ``x`` stand for, where they are no measurements: tokens of a text, or columns of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """What the rows of a text are made of.

    Attributes:
        tokenizer: ``bytes``, or the folder of the tokenizer, relative to the dataset's.
        vocabulary: token ids are below this number.
        sequence_length: tokens that a language model predicts in a row (which has one more); or the most tokens of a
            passage to classify.
        padding: token that fills rows up to the longest of a batch.
        end_of_text: token after each document; 256 for bytes.
        size: split to bytes of its text as UTF-8.
        gzip_size: split to bytes of its text after gzip at level 9; empty for a classification.
        tokens: split to number of its tokens, with those for the end of a text.
        sha256: of the tokenizer's ``tokenizer.json``; empty for bytes.
        documents: ``joined``, or ``separate``: a token is predicted from its own document alone.
    """

    tokenizer: str
    vocabulary: int
    sequence_length: int
    padding: int
    end_of_text: int
    size: Mapping[str, int]
    gzip_size: Mapping[str, int]
    tokens: Mapping[str, int]
    sha256: str = ""
    documents: str = "joined"

    @property
    def separator(self) -> int:
        """The token that a document begins behind, for a model that keeps documents apart; else -1."""
        return self.end_of_text if self.documents == "separate" else -1

    @property
    def fingerprint(self) -> str:
        """The same for the same tokenizer: ``bytes``, or the sha256 of its file."""
        return self.sha256 or self.tokenizer

    def bits_per_byte(self, split: str, nats_per_token: float) -> float:
        """A model's mean loss on a split, as bits for each byte of UTF-8: comparable between tokenizers."""
        return nats_per_token / math.log(2) * self.tokens[split] / self.size[split]

    def gzip_bits_per_byte(self, split: str) -> float:
        """What gzip needs for the same text."""
        return 8 * self.gzip_size[split] / self.size[split]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the user's table, as the rows hold it.

    Attributes:
        name: in the table.
        values: of a category, the texts that its codes 1, 2, ... stand for, the empty one for a missing cell; any other
            text is code 0. None for a number.
        fill: what stands for a missing number; None where none may be missing.
        marked: whether a further feature is 1 where the number is missing, else 0.
    """

    name: str
    values: tuple[str, ...] | None = None
    fill: float | None = None
    marked: bool = False

    def to_json(self) -> dict[str, Any]:
        """As `index.json` has it, without what does not apply."""
        if self.values is not None:
            return {"name": self.name, "values": list(self.values)}
        return (
            {"name": self.name} if self.fill is None else {"name": self.name, "fill": self.fill, "marked": self.marked}
        )


@dataclass(frozen=True, slots=True)
class TableEncoding:
    """How the user's rows become rows of ``x``: its columns in order, then a feature for each that is `marked`.

    Attributes:
        columns: of the user's table; those that are left out are not among them.
        missing: texts that stand for a missing value, besides the empty one.
    """

    columns: tuple[TableColumn, ...]
    missing: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in the order of ``x``."""
        return tuple([c.name for c in self.columns] + [f"{c.name} is missing" for c in self.columns if c.marked])

    @property
    def categories(self) -> tuple[int, ...]:
        """Numbers of the features that are codes of a category."""
        return tuple(number for number, column in enumerate(self.columns) if column.values is not None)

    def to_json(self) -> dict[str, Any]:
        """As `index.json` and a model's card have it."""
        return {"columns": [column.to_json() for column in self.columns], "missing": list(self.missing)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> TableEncoding:
        """Read what `to_json` gives."""
        return cls(tuple(_table_column(one) for one in found["columns"]), tuple(map(str, found["missing"])))


def _table_column(found: Mapping[str, Any]) -> TableColumn:
    values, fill = found.get("values"), found.get("fill")
    return TableColumn(
        name=str(found["name"]),
        values=None if values is None else tuple(map(str, values)),
        fill=None if fill is None else float(fill),
        marked=bool(found.get("marked", False)),
    )

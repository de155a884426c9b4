"""Rows of a split as a person recognises them: a small picture, a text, or the columns of a table; bounded in size."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.data import Dataset, Split, TextEncoding
from shared.data.dataset.encodings import TableColumn, TableEncoding
from shared.data.dataset.index import TOKENIZER_FILE

_MOST_PIXELS = 96  # of a picture's longer side
_DIM = 64  # of 256: rows of bytes whose highest value is below it are drawn as if that were white
_MOST_CHARACTERS = 600
_MOST_COLUMNS = 30
_CHANNELS = (1, 3, 4)
_END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row for people: one of these is there, according to the data; nothing for rows of any other shape.

    Attributes:
        picture: data URI of a PNG.
        text: without what is beyond its first characters.
        columns: name to value, of the first columns.
    """

    picture: str = ""
    text: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What is there, by name."""
        every = {"picture": self.picture, "text": self.text, "columns": dict(self.columns)}
        return {name: value for name, value in every.items() if value}


@dataclass(frozen=True, slots=True)
class RowReader:
    """Shows rows of one split of a dataset."""

    dataset: Dataset
    split: Split

    def show(self, rows: npt.NDArray[np.int64]) -> list[ShownRow]:
        """Show rows by their numbers, in the order asked."""
        index = self.dataset.index
        if not len(rows):
            return []
        taken = self.split.take(rows)
        if index.text:
            read = TokenText.open(self.dataset, index.text)
            lengths = taken.get("lengths", np.full(len(rows), taken["x"].shape[1]))
            return [ShownRow(text=read(x[:length])) for x, length in zip(taken["x"], lengths, strict=True)]
        shape = index.arrays["x"].shape
        if len(shape) == 3 and shape[2] in _CHANNELS:
            highest = int(taken["x"].max())
            white = highest if 0 < highest < _DIM else 255  # scikit-learn's digits end at 16: all black
            return [ShownRow(picture=draw_thumbnail(x, white)) for x in taken["x"]]
        if len(shape) == 1:
            return [ShownRow(columns=_cells(x, index.table, index.columns)) for x in taken["x"]]
        return [ShownRow() for _ in rows]


class TokenText:
    """Gives tokens back as text; where the package tokenizers is needed and is not installed, as their numbers."""

    def __init__(self, tokenizer: Any, end_of_text: int, *, special: bool) -> None:
        self._tokenizer, self._end, self._special = tokenizer, end_of_text, special

    @classmethod
    def open(cls, dataset: Dataset, text: TextEncoding) -> TokenText:
        """Read the dataset's tokenizer; special tokens are shown where documents are joined, and not in passages."""
        special = dataset.index.task == "language_modeling"
        if not text.sha256:
            return cls(None, text.end_of_text, special=special)
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            return cls("", text.end_of_text, special=special)
        file = dataset.folder / text.tokenizer / TOKENIZER_FILE
        return cls(Tokenizer.from_file(str(file)), text.end_of_text, special=special)

    def __call__(self, ids: Iterable[int]) -> str:
        """Give the text of some tokens, or its beginning."""
        numbers = [int(one) for one in ids]
        if self._tokenizer is None:
            return _shorten(_bytes_text(numbers, self._end))
        if self._tokenizer == "":
            return _shorten("tokens " + " ".join(map(str, numbers)))
        return _shorten(self._tokenizer.decode(numbers, skip_special_tokens=not self._special))


def _bytes_text(numbers: Sequence[int], end: int) -> str:
    """Text of bytes; a character that was cut is shown as such."""
    found, piece = "", bytearray()
    for number in [*numbers, -1]:
        if 0 <= number < 256:
            piece.append(number)
            continue
        found += piece.decode("utf-8", errors="replace") + (_END_OF_TEXT if number == end else "")
        piece.clear()
    return found


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def draw_thumbnail(x: npt.NDArray[Any], white: int = 255) -> str:
    """Data URI of a PNG of an image (height, width, channels), made smaller by a whole factor if it is large.

    Bytes go from black, 0, to `white`; anything else from its smallest value to its largest.
    """
    from matplotlib.image import imsave

    factor = -(-max(x.shape[:2]) // _MOST_PIXELS)
    high, wide = (max(1, side // factor) for side in x.shape[:2])
    cut = x[: high * factor, : wide * factor].astype(np.float64)
    small = cut.reshape(high, len(cut) // high, wide, cut.shape[1] // wide, -1).mean((1, 3))
    if x.dtype == np.uint8:
        small *= 255 / white
    else:
        low, span = small.min(), float(np.ptp(small))
        small = (small - low) * (255 / span if span > 0 else 0)
    colors = small[..., :3] if x.shape[2] > 1 else small.repeat(3, axis=2)
    file = io.BytesIO()
    nothing: dict[str, Any] = {"Software": None}  # neither version nor date: the same row gives the same bytes
    imsave(file, colors.round().astype(np.uint8), format="png", metadata=nothing)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _cells(x: npt.NDArray[Any], table: TableEncoding | None, names: Sequence[str]) -> dict[str, str]:
    """The columns of the user's table, as far as they are shown; of plain rows, their numbers."""
    if table is None:
        named = names or [str(number) for number in range(len(x))]
        return {name: f"{value:.6g}" for name, value in zip(named[:_MOST_COLUMNS], x.tolist(), strict=False)}
    marks = iter(range(len(table.columns), len(x)))
    missing = {column.name for column in table.columns if column.marked and x[next(marks)]}
    shown = table.columns[:_MOST_COLUMNS]
    return {c.name: _cell(c, float(value), missing=c.name in missing) for c, value in zip(shown, x, strict=False)}


def _cell(column: TableColumn, value: float, *, missing: bool) -> str:
    if missing:
        return "(missing)"
    if column.values is None:
        return f"{value:.6g}"
    code = int(value)
    return (column.values[code - 1] or "(missing)") if code else "(not in train)"

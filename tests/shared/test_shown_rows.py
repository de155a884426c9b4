"""Rows as the report of an evaluation shows them."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from shared.data import Dataset, TextEncoding
from shared.data.dataset.encodings import TableColumn, TableEncoding
from shared.data.text.tokens import SubwordTokens, train_subwords
from shared.report.shown_rows import RowReader, TokenText, _cells, draw_thumbnail
from tests.shared.samples import write_text_classification_dataset


def pixels(uri: str) -> np.ndarray:
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,")))).convert("RGB")
    )


def test_a_small_image_is_shown_as_it_is() -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(pixels(draw_thumbnail(x)), x)
    assert np.array_equal(pixels(draw_thumbnail(x // 16, white=15)), x // 16 * 17)


def test_cells_of_a_table_are_the_users_values_again() -> None:
    columns = (
        TableColumn("colour", values=("", "blue", "red")),
        TableColumn("age", fill=41.5, marked=True),
        TableColumn("size", fill=2.0, marked=True),
        TableColumn("price"),
    )
    table = TableEncoding(columns)
    x = np.array([3, 41.5, 7, 1e6, 1, 0], np.float32)
    assert _cells(x, table, ()) == {"colour": "red", "age": "(missing)", "size": "7", "price": "1e+06"}
    other = np.array([0, 1, 2, 3, 0, 1], np.float32)
    assert _cells(other, table, ()) == {"colour": "(not in train)", "age": "1", "size": "(missing)", "price": "3"}
    assert _cells(np.array([1, 1, 2, 3, 0, 0], np.float32), table, ())["colour"] == "(missing)"


def test_tokens_of_a_tokenizer_are_text_again(tmp_path: Path) -> None:
    dataset = Dataset.open(write_text_classification_dataset(tmp_path, rows=(64, 16, 16)))
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name, text in train_subwords(["Grüße aus dem Süden, 东京!"] * 3, 300).items():
        (folder / name).write_text(text, encoding="utf-8")
    tokens = SubwordTokens.open(folder)
    (ids,) = tokens.encode(["Süden, 东京"])
    encoding = TextEncoding("tokenizer", 300, 32, 0, tokens.end_of_text, {}, {}, {}, sha256=tokens.sha256)
    assert TokenText.open(dataset, encoding)(ids) == "Süden, 东京"


def test_bytes_that_were_cut_within_a_character_are_shown_and_long_texts_end(tmp_path: Path) -> None:
    dataset = Dataset.open(write_text_classification_dataset(tmp_path, rows=(64, 16, 16)))
    read = TokenText.open(dataset, dataset.index.text)
    assert read([*"é".encode(), 256, *"ü".encode()[:1]]) == "é<|endoftext|>\ufffd"
    assert read([97] * 5000) == "a" * 599 + "…"
    assert RowReader(dataset, dataset.split("test")).show(np.array([], np.int64)) == []

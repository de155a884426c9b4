"""Sources of documents and tokenizers, without ranks: every row once, at its place, and what is wrong by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from shared.data.formats import json_lines, parquet_files
from shared.data.text.documents import Document
from shared.data.text.sources import TEXT_SOURCES
from shared.data.text.tokens import ByteTokens, SubwordTokens, train_subwords
from shared.data.write.request import BadFiles, SourceRequest
from shared.data.write.splits import DocumentSplitter
from shared.distributed import Refusal

SPLITTER = DocumentSplitter(0, 0.2, 0.2)


def read(dataset: str, folder: Path, **options: Any) -> tuple[list[Document], list[tuple[str, str]]]:
    """All documents of a source, and what was left out."""
    bad = BadFiles(skip=True)
    request = SourceRequest(dataset, folder, options.pop("labelled", False), SPLITTER, bad=bad, **options)
    source = TEXT_SOURCES[dataset](request)
    documents = [document for unit in range(len(source.sizes)) for document in source.read(unit, bad)]
    return documents, [(file.path, file.reason) for file in bad.found]


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), min_size=1, max_size=12),
    unit=st.integers(1, 60),
    blank=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_json_lines_come_once_wherever_they_are_cut(
    texts: list[str], unit: int, blank: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    lines = [json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" * (1 + blank) for text in texts]
    lines.insert(len(lines) // 2, b"[1]\n")
    (folder / "a.jsonl").write_bytes(b"".join(lines).removesuffix(b"\n"))
    before, json_lines.UNIT_BYTES = json_lines.UNIT_BYTES, unit
    try:
        if lines[0] == b"[1]\n":
            with pytest.raises(Refusal, match="has to be an object"):
                read("jsonl", folder)
            return
        documents, bad = read("jsonl", folder)
    finally:
        json_lines.UNIT_BYTES = before
    assert [document.text for document in documents] == texts
    number = b"".join(lines[: len(texts) // 2]).count(b"\n") + 1
    assert bad == [(f"a.jsonl:{number}", r"is b'[1]\n', not an object of JSON")]


def test_what_is_wrong_with_json_lines(tmp_path: Path) -> None:
    lines = [
        b'{"text": "good", "label": 3}',
        b'{"text": "caf\xe9", "label": 3}',
        b'{"text": "\\ud800", "label": 3}',
        b'{"text": "", "label": 3}',
        b'{"text": 7, "label": 3}',
        b'{"text": "no class"}',
        b'{"text": "half a class", "label": 0.5}',
        b'{"text": "long ' + 2000 * b"x" + b'", "label": 3}',
        b'{"text": "very long ' + 100_000 * b"x" + b'", "label": 3}',
        b'{"text": "cut',
        b'{"text": "also good", "label": true}',
    ]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    documents, bad = read("jsonl", tmp_path, labelled=True, most_bytes=1024)
    assert [(document.text, document.label) for document in documents] == [("good", "3"), ("also good", "true")]
    assert [path for path, _ in bad] == [f"a.jsonl:{line}" for line in range(2, 11)]
    expected = (
        "not JSON in UTF-8",
        "not text in UTF-8",
        "no text",
        "no text",
        "no class",
        "no class",
        "has 2,005 bytes",
    )
    for (_, reason), part in zip(bad, (*expected, "is longer than a text", "not JSON"), strict=True):
        assert part in reason


def test_what_is_wrong_with_csv(tmp_path: Path) -> None:
    rows = b'text;label\n"two\nlines; here";a\nshort\ncaf\xe9;a\n;a\nlast;b\n'
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + rows)
    (tmp_path / "b.csv").write_bytes(b"other,label\nx,y\n")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b"text,label\nzipped,a\n" * 1)[:-6])
    documents, bad = read("csv", tmp_path, labelled=True)
    assert [document.text for document in documents][:3] == ["two\nlines; here", "last", "zipped"][: len(documents)]
    assert [path for path, _ in bad] == ["a.csv:4", "a.csv:5", "a.csv:6", "b.csv", "c.csv.gz"]
    reasons = "\n".join(reason for _, reason in bad)
    for part in ("has 1 cells, but there are 2", "not text in UTF-8", "has no text", "has no column text"):
        assert part in reasons


def test_a_cell_without_an_end_spoils_only_what_follows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text\ngood\n"never closed' + 200_000 * " x\n", encoding="utf-8")
    documents, bad = read("csv", tmp_path, most_bytes=1000)
    assert [document.text for document in documents] == ["good"]
    assert "field larger than field limit" in bad[0][1]
    assert "what follows is left out" in bad[0][1]


def test_row_groups_are_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"text {number}" for number in range(1000)]
    table = pa.table(
        {"n": range(1000), "text": pa.array(texts).dictionary_encode(), "label": [n % 3 for n in range(1000)]}
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    monkeypatch.setattr(parquet_files, "UNIT_BYTES", 5000)
    documents, bad = read("parquet", tmp_path, labelled=True)
    assert [document.text for document in documents] == texts
    assert [document.label for document in documents[:4]] == ["0", "1", "2", "0"]
    assert bad == []
    source = TEXT_SOURCES["parquet"](SourceRequest("parquet", tmp_path, False, SPLITTER))
    assert 2 <= len(source.sizes) <= 10
    assert next(d.text for d in source.read(1, BadFiles())) == f"text {100 * (10 // len(source.sizes))}"


def test_bytes_in_a_parquet_that_are_no_text(tmp_path: Path) -> None:
    wrong = pa.array([b"good", b"caf\xe9", None, b"fine"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": wrong}), tmp_path / "a.parquet")
    documents, bad = read("parquet", tmp_path)
    assert [document.text for document in documents] == ["good", "fine"]
    assert [path for path, _ in bad] == ["a.parquet:2", "a.parquet:3"]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "b.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(Refusal, match=r"none of its 1 files can be used; b.parquet is not a whole Parquet file"):
        read("parquet", tmp_path / "cut")


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        ("jsonl", {"text_column": "txt"}, r"no column 'txt' \(text_column\); it has text, kind. Did you mean text"),
        ("jsonl", {"labelled": True, "label_column": "zzz"}, "Set label_column to one of these"),
        ("csv", {"text_column": "txt"}, r"no column 'txt' \(text_column\); it has text, kind"),
        ("parquet", {"text_column": "kind"}, "kind is double: a text has to be a string"),
        ("parquet", {"labelled": True, "label_column": "kind"}, "kind is double"),
    ],
)
def test_columns_that_are_not_there(dataset: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "kind": 1.5}\n', encoding="utf-8")
    (tmp_path / "a.csv").write_text("text,kind\nx,1.5\n", encoding="utf-8")
    parquet.write_table(pa.table({"text": ["x"], "kind": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(Refusal, match=message):
        read(dataset, tmp_path, **options)


def test_files_by_pattern_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    contents = {"a/1.txt": b"one", "a/2.md": b"two", "b/3.txt": b"caf\xe9", "b/.hidden.txt": b"no", "b/4.txt": b"",
                "b/5.txt": b"x" * 200, "b/6.txt": b"\xef\xbb\xbfsix", "a/7.bin": b"\x00\xff"}  # fmt: skip
    for path, content in contents.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    (tmp_path / "b" / "gone.txt").symlink_to("nowhere")
    documents, bad = read("files", tmp_path, pattern="*.txt, a/*.md", most_bytes=100)
    assert [document.text for document in documents] == ["one", "two", "six"]
    assert [path for path, _ in bad] == ["b/3.txt", "b/5.txt", "b/gone.txt"]
    assert "byte 3 is 0xe9" in bad[0][1]
    assert "has 200 bytes; max_megabytes 9.53674e-05 allows 100" in bad[1][1]
    with pytest.raises(Refusal, match=r"none of the 8 files in .* fits the pattern"):
        read("files", tmp_path, pattern="*.rst")
    (tmp_path / "loose.txt").write_text("x")
    with pytest.raises(Refusal, match=r"1 files, such as loose.txt, lie in no folder"):
        read("files", tmp_path, labelled=True)


def test_splits_of_files_are_as_exact_as_they_can_be() -> None:
    names = [f"{number}.txt" for number in range(60)]
    labels = ["a"] * 50 + ["b"] * 10
    splits = SPLITTER.split_all(names, labels)
    for label, total in (("a", 50), ("b", 10)):
        mine = [split for split, of in zip(splits, labels, strict=True) if of == label]
        assert (mine.count("validation"), mine.count("test")) == (total // 5, total // 5)
    assert SPLITTER.split_all(names[:50] + names[50:], labels) == splits
    more = SPLITTER.split_all([*names, "more.txt"], [*labels, "a"])
    assert sum(a != b for a, b in zip(splits, more, strict=False)) <= 2, "a further file moves hardly any other"
    with pytest.raises(Refusal, match=r"the class 'c' has 2\. Each split takes one"):
        SPLITTER.split_all([*names, "x", "y"], [*labels, "c", "c"])


def test_splits_of_rows_have_the_fractions_on_average() -> None:
    splits = [SPLITTER.split_of(str(number).encode()) for number in range(5000)]
    assert splits.count("test") == pytest.approx(1000, abs=100)
    assert splits.count("validation") == pytest.approx(1000, abs=100)
    assert [DocumentSplitter(1, 0.2, 0.2).split_of(str(number).encode()) for number in range(5000)] != splits


def test_passages_are_about_equally_long() -> None:
    (cut,) = ByteTokens().passages(["abcdefghijk"], 4)
    assert [bytes(ids) for ids in cut] == [b"abcd", b"efgh", b"ijk"]


def test_a_learnt_tokenizer_writes_any_text_and_is_always_the_same() -> None:
    texts = ["def add(one, other):\n    return one + other\n", "the cat sees the dog\n"] * 20
    files = train_subwords(texts, 330)
    assert files == train_subwords(texts, 330)
    tokens = SubwordTokens({name: text.encode() for name, text in files.items()}, "x")
    assert 280 <= tokens.vocabulary <= 330  # there is no more to learn
    ids = tokens.encode([texts[0], "żółć 😀"])
    assert len(ids[0]) < len(texts[0]) / 2
    assert tokens._tokenizer.decode(ids[1].tolist()) == "żółć 😀"
    assert tokens.end_of_text == tokens.padding == 0
    cut = tokens.passages([texts[0]], 5)[0]
    np.testing.assert_array_equal(np.concatenate(cut), ids[0])
    assert max(map(len, cut)) - min(map(len, cut)) <= 4


def test_special_tokens_belong_to_each_passage(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"abcdefgh"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokens = SubwordTokens.open(tmp_path)
    assert (tokens.vocabulary, tokens.end_of_text, tokens.padding) == (12, 2, 3)
    assert [ids.tolist() for ids in tokens.encode(["a b z"])] == [[4, 5, 0]]
    cut = tokens.passages(["a b c d e", "", "a"], 5)
    assert [[ids.tolist() for ids in text] for text in cut] == [[[1, 4, 5, 6, 2], [1, 7, 8, 2]], [[1, 2]], [[1, 4, 2]]]
    with pytest.raises(Refusal, match="sequence_length 2 has no room beside the special tokens"):
        tokens.passages(["a"], 2)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": "{}"}, "holds no tokenizer.json, but config.json"),
        ({"tokenizer.json": "{"}, "tokenizer.json or tokenizer_config.json cannot be read"),
        ({"tokenizer.json": None}, "has no token for the end of a text"),
    ],
)
def test_a_tokenizer_folder_that_cannot_be_used(files: dict[str, str | None], message: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    for name, text in files.items():
        plain = Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str()
        (tmp_path / name).write_text(plain if text is None else text)
    with pytest.raises(Refusal, match=message):
        SubwordTokens.open(tmp_path)

"""Values of tables in several spellings and notations: read as pandas reads them, or refused with the reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies
from pyarrow import parquet

from shared.data.sources import SOURCES
from shared.data.sources.table_rows import spelling_key
from shared.data.write.request import ItemSource, SourceRequest
from shared.distributed import Refusal
from shared.models.raw_rows import plain_text


def read(folder: Path, *texts: str, form: str = "csv", **given: Any) -> ItemSource:
    for number, text in enumerate(texts):
        (folder / f"{number}.csv").write_text(text, encoding="utf-8")
    return SOURCES[form](SourceRequest(form, folder, **given))


def values_of(source: Any) -> dict[str, tuple[str, ...]]:
    return dict(source.values)


def numbers(values: list[str], name: str = "a") -> str:
    rows = "".join(f"{value};{'xy'[row % 2]}\n" for row, value in enumerate(values))
    return f"{name};target\n{rows}"


@pytest.mark.parametrize("text", ["NA", "nan", "null", "None", " NA ", "N/A", "?"])
def test_a_label_is_missing_as_a_feature_is(tmp_path: Path, text: str) -> None:
    rows = f"a,target\n1,yes\n2,no\n3,{text}\n"
    with pytest.raises(Refusal, match=r"0\.csv:4: column 'target' is empty, or holds what stands for missing"):
        read(tmp_path, rows, missing_values=("?",))
    assert read(tmp_path, rows, missing_values=("?",), skip_missing=True).classes == ("no", "yes")


def test_a_text_that_stands_for_missing_can_be_a_value(tmp_path: Path) -> None:
    rows = "land,target\nNA,yes\nDE,no\nNA,no\n"
    with pytest.raises(Refusal, match="missing_values !NA makes it a value"):
        read(tmp_path, rows)
    assert values_of(read(tmp_path, rows, missing_values=("!NA",))) == {"land": ("NA", "DE")}


def test_a_whole_number_is_one_label_with_and_without_a_fraction(tmp_path: Path) -> None:
    assert read(tmp_path, "a,target\n1,0\n2,1\n", "a,target\n1,0.0\n2,1.0\n").classes == ("0", "1")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("cat", "cat "),
        ("1", "01"),
        ("1", "+1"),
        ("true", "True"),
        ("caf\u00e9", "cafe\u0301"),
        ("0.5", "0.50"),
        ("a", " a"),
    ],
)
@pytest.mark.parametrize("column", ["a", "target"])
def test_two_spellings_of_one_value_are_refused(tmp_path: Path, column: str, first: str, second: str) -> None:
    rows = [f"{value},{label}" for value, label in ((first, "x"), (second, "y"), ("other", "x"))]
    if column == "target":
        rows = [",".join(reversed(row.split(","))) for row in rows]
    with pytest.raises(Refusal) as refused:
        read(tmp_path, "a,target\n" + "\n".join(rows) + "\n", categorical_columns=("a",))
    assert f"column {column!r} holds {first!r} and {second!r}: spellings of one value" in str(refused.value)


@pytest.mark.slow
@given(strategies.text(max_size=8), strategies.text(max_size=8))
def test_a_saved_model_compares_spellings_alike(first: str, second: str) -> None:
    assert (spelling_key(first) == spelling_key(second)) == (plain_text(first) == plain_text(second))


@pytest.mark.parametrize("values", [["1,25", "2,5"], ["1.234,5", "2.000,0"], ["1 000", "25 000"], ["-0,5", "1,0"]])
def test_numbers_in_another_notation_are_named(tmp_path: Path, values: list[str]) -> None:
    with pytest.raises(Refusal, match="column 'a' holds numbers with a decimal comma or with separators of thousands"):
        read(tmp_path, numbers(values))
    assert values_of(read(tmp_path, numbers(values), categorical_columns=("a",)))["a"] == tuple(values)


@pytest.mark.parametrize("values", [["Alice", "Nan"], ["Audi", "Infinity"], ["12_05", "01_02"]])
def test_texts_that_python_takes_for_numbers_are_texts(tmp_path: Path, values: list[str]) -> None:
    assert values_of(read(tmp_path, numbers(values)))["a"] == tuple(values)


def test_numbers_that_fall_together_in_32_bits_are_refused(tmp_path: Path) -> None:
    seconds = [str(1_700_000_000 + second) for second in range(60)]
    with pytest.raises(
        Refusal, match="reaches from 1700000000 to 1700000059, where a model's 32 bits tell only 1 value"
    ):
        read(tmp_path, numbers(seconds))
    days = [str(1_700_000_000 + 86_400 * day) for day in range(60)]
    assert len(read(tmp_path, numbers(days)).labels) == 60


@pytest.mark.parametrize(
    "head", ['"weight, kg";"height, cm, barefoot";target', '"weight\n(kg)";height;target', "\n\nweight;height;target"]
)
def test_the_header_is_read_by_the_rules_of_the_rows(tmp_path: Path, head: str) -> None:
    source = read(tmp_path, head + "\n1;2;x\n3;4;y\n")
    (tmp_path / "0.csv").write_text(head + "\n1;2;x\n3;4;y\n")
    assert list(source.columns) == list(pd.read_csv(tmp_path / "0.csv", sep=";").columns[:2])


def test_faults_name_their_cause(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"0\.csv:3: .*a quote is not closed"):
        read(tmp_path, 'a,b,target\n1,2,x\n1,"2,y\n3,4,x\n5,6,y\n')
    with pytest.raises(Refusal, match="empty in all rows: b"):
        read(tmp_path, "a,b,target\n1,,x\n2,,y\n", skip_missing=True)


def test_partitions_are_refused_and_other_files_counted(tmp_path: Path) -> None:
    frame = pd.DataFrame({"b": range(8), "target": list("xyxyxyxy"), "region": list("nnssnnss")})
    frame.to_parquet(tmp_path / "divided", partition_cols=["region"])
    with pytest.raises(Refusal, match="the folders region=n hold values of columns that are not in the files"):
        read(tmp_path / "divided", form="parquet")
    frame.to_parquet(tmp_path / "0.parquet")
    (tmp_path / "notes.txt").touch()
    notes: list[str] = []
    folder = tmp_path / "one"
    folder.mkdir()
    for name in ("0.parquet", "notes.txt"):
        (tmp_path / name).rename(folder / name)
    read(folder, form="parquet", note=notes.append)
    assert any("left out are files that do not end in .parquet" in note and ".txt (1)" in note for note in notes)


def test_a_column_of_nulls_is_left_out_where_missing_values_are_filled_in(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0], "none": pa.nulls(2), "target": ["x", "y"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    source = read(tmp_path, form="parquet", impute_missing=True)
    assert source.columns == ("a", "none")  # of which encoding leaves out what is empty in train
    assert np.isnan(source.read(np.arange(2), None)[:, 1]).all()


CELLS = strategies.one_of(
    strategies.integers(-999, 999).map(str),
    strategies.floats(-1e6, 1e6, width=32).map(repr),
    strategies.sampled_from(
        ["", "NA", "0", "0.0", "00", "1e3", " 5", "7 ", "+3", "true", "False", "a", "b ", "caf\u00e9"]
    ),
)


@settings(max_examples=100)
@given(strategies.lists(strategies.tuples(CELLS, CELLS), min_size=2, max_size=12))
def test_a_table_is_what_pandas_reads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("table")
    text = "a,target\n" + "".join(f"{a},{b}\n" for a, b in rows)
    try:
        source = read(folder, text, impute_missing=True)
    except Refusal:
        return
    frame = pd.read_csv(folder / "0.csv", float_precision="round_trip").dropna(subset=["target"])
    assert len(source.labels) == len(frame)
    labels = [source.classes[label] for label in source.labels[np.arange(len(frame))]]
    assert [plain_text(label) for label in labels] == [plain_text(str(label)) for label in frame["target"]]
    cells = source.read(np.arange(len(frame)), None)[:, 0]
    for cell, wanted in zip(cells.tolist(), frame["a"].tolist(), strict=True):
        if "a" in values_of(source):
            shown = "" if math.isnan(cell) else values_of(source)["a"][int(cell)]
            assert plain_text(shown) == ("" if wanted != wanted else plain_text(str(wanted)))  # noqa: PLR0124 not a number
        else:
            assert math.isnan(cell) if wanted != wanted else cell == np.float32(wanted)  # noqa: PLR0124

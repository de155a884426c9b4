"""Tables: what is read, and each thing that cannot be, named with file, line and column."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from shared.data.sources import SOURCES, BadFiles, ItemSource, SourceRequest
from shared.distributed import Refusal

GOOD = "a,b,target\n1,2.5,cat\n-3,4e2,dog\n5,6,cat\n"


def open_csv(folder: Path, text: str | bytes | None = None, name: str = "t.csv", **given: Any) -> ItemSource:
    if text is not None:
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return SOURCES["csv"](SourceRequest("csv", folder, **given))


def open_parquet(folder: Path, columns: dict[str, Any] | None = None, **given: Any) -> ItemSource:
    if columns is not None:
        parquet.write_table(pa.table(columns), folder / "t.parquet")
    return SOURCES["parquet"](SourceRequest("parquet", folder, **given))


def everything(source: ItemSource) -> np.ndarray:
    return source.read(np.arange(len(source.labels)), BadFiles())


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace(",", ";"),
        GOOD.replace(",", "\t"),
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("cat\n", '"cat"\n\n'),
        "target,b,a\ncat,2.5,1\ndog,400,-3.0\ncat,6.00,5\n",
    ],
)
def test_csv_in_its_dialects(tmp_path: Path, text: str) -> None:
    source = open_csv(tmp_path, text)
    order = [source.columns.index(name) for name in ("a", "b")]
    assert everything(source)[:, order].tolist() == [[1, 2.5], [-3, 400], [5, 6]]
    assert (source.classes, source.labels[:].tolist()) == (("cat", "dog"), [0, 1, 0])
    assert (source.array.shape, source.array.dtype) == ((2,), "float32")


def test_a_file_alone_gzipped_files_and_hidden_ones(tmp_path: Path) -> None:
    (tmp_path / "part" / "deep").mkdir(parents=True)
    (tmp_path / "part" / "deep" / "2.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    (tmp_path / "_SUCCESS.csv").write_text("")
    (tmp_path / ".hidden.csv").write_text("")
    source = open_csv(tmp_path, "b,extra,target,a\n8,0,emu,7\n", name="1.csv", ignore_columns=("extra",))
    assert source.columns == ("b", "a")
    assert everything(source)[:2].tolist() == [[8, 7], [2.5, 1]]
    assert source.classes == ("cat", "dog", "emu")
    assert source.where(0).endswith("1.csv")
    assert source.where(3).endswith("2.csv.gz")
    assert len(open_csv(tmp_path / "part" / "deep" / "2.csv.gz").labels) == 3
    loud = (tmp_path / "part" / "deep" / "2.csv.gz").rename(tmp_path / "part" / "2.CSV.GZ")
    assert len(open_csv(loud).labels) == 3


def test_cells_with_line_breaks_in_a_file_of_several_blocks(tmp_path: Path) -> None:
    rows = "".join(f'{row},"a\n{row},b,cat\n{"-" * 90}",dog\n' for row in range(25_000))
    source = open_csv(tmp_path, "x,text,target\n" + rows, ignore_columns=("text",))
    assert (len(source.labels), source.classes) == (25_000, ("dog",))
    assert everything(source)[-1].tolist() == [24_999]


def test_classes_are_sorted_as_numbers_if_they_are(tmp_path: Path) -> None:
    assert open_csv(tmp_path, "x,target\n1,10\n1,9\n1,-1\n").classes == ("-1", "9", "10")
    assert open_csv(tmp_path, "x,target\n1,10\n1,9\n1,b\n").classes == ("10", "9", "b")
    assert open_csv(tmp_path, "x,target\n1,--5\n1,-4\n").classes == ("--5", "-4"), "no number"
    numbers = {"x": [1.0, 2.0, 3.0]}
    texts = pa.array(["1", "0", "1"])
    exact, half = pa.array([1, 0, 1], pa.decimal128(3, 2)), pa.array(np.array([1, 0, 1], np.float16))
    for target in ([1, 0, 1], [1.0, 0.0, 1.0], ["1", "0", "1"], texts.dictionary_encode(), exact, half):
        source = open_parquet(tmp_path, {**numbers, "target": target})
        assert (source.classes, source.labels[:].tolist()) == (("0", "1"), [1, 0, 1])
    assert open_parquet(tmp_path, {**numbers, "target": [True, False, True]}).classes == ("False", "True")


def test_parquet_takes_every_kind_of_number(tmp_path: Path) -> None:
    columns = {
        "f": pa.array(np.array([1.5, 2.5], np.float16)),
        "i": pa.array([-1, 2**40], pa.int64()),
        "u": pa.array([1, 255], pa.uint8()),
        "b": [True, False],
        "d": pa.array([1, 2], pa.decimal128(6, 2)),
        "target": ["x", "y"],
        "__index_level_0__": [0, 1],
    }
    source = open_parquet(tmp_path, columns)
    assert source.columns == ("f", "i", "u", "b", "d")
    assert everything(source).tolist() == [[1.5, -1, 1, 1, 1], [2.5, 2**40, 255, 0, 2]]


def test_a_later_file_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(GOOD)
    with pytest.raises(Refusal, match=r"2.csv has more than one column called b\."):
        open_csv(tmp_path, "a,b,b,target\n1,2,3,cat\n", name="2.csv")


def test_a_regression_has_numbers_as_they_are(tmp_path: Path) -> None:
    source = open_csv(tmp_path, "x,price\n1,1234567.25\n2,-1\n", task="regression", target="price")
    assert (source.task, source.classes, source.labels[:].tolist()) == ("regression", (), [1234567.25, -1])
    assert source.labels[:].dtype == np.float64
    whole = open_parquet(tmp_path, {"x": [1, 2], "target": [3, 4]}, task="regression")
    assert whole.labels[:].tolist() == [3, 4]
    with pytest.raises(Refusal, match="the target target is string, not numbers"):
        open_parquet(tmp_path, {"x": [1, 2], "target": ["a", "b"]}, task="regression")


CSV_FAULTS = [
    ("a,b,label\n1,2,x\n", {}, "has no column 'target'", "label"),
    ("a,b,Target\n1,2,x\n", {}, "Did you mean 'Target'", "has no column 'target'"),
    ("1,2,0\n3,4,1\n", {}, "put a line with the columns' names before it", "t.csv"),
    (GOOD, {"ignore_columns": ("bb",)}, "has no column 'bb' (ignore_columns)", "Did you mean 'b'?"),
    ("a,b,target\n1,2,x\n1,abc,x\n", {}, "t.csv:3: column 'b' is 'abc', not a number", "on_bad_file"),
    ("a,b,target\n1,2,x\n\n1,true,x\n", {}, "t.csv:4: column 'b' is 'true', not a number", "t.csv"),
    ("a,b,target\n1,2,x\n1,x\n", {}, "t.csv:3: 2 cells, but 3 columns", "t.csv"),
    ("a,b,target\n1,2,x\n1,2,3,x\n", {}, "t.csv:3: 4 cells, but 3 columns", "t.csv"),
    ("a,b,target\n1,2,x\n1,,x\n", {}, "t.csv:3: column 'b' is empty", "on_missing skip"),
    ("a,b,target\n1,2,x\n\n1,nan,x\n", {}, "t.csv:4: column 'b' is empty", "on_missing skip"),
    ("a,b,target\n1,2,x\n1,3,\n", {}, "t.csv:3: column 'target' is empty", "on_missing skip"),
    ("a,b,target\n1,2,x\n1,1e300,x\n", {}, "t.csv:3: column 'b' is not a finite number of 32 bits", "t.csv"),
    ("a,b,target\n1,2,x\n1,inf,x\n", {}, "t.csv:3: column 'b' is not a finite number of 32 bits", "t.csv"),
    ("a,target\n1,x\n", {"task": "regression"}, "t.csv:2: column 'target' is 'x', not a number", "t.csv"),
    ("a,a,target\n1,2,x\n", {}, "more than one column called a", "t.csv"),
    (",a,target\n0,1,x\n", {}, "column 1 has no name", "index=False"),
    ("target\nx\n", {}, "has no column besides target", "t.csv"),
    ("", {}, "is empty: a line with the columns' names is needed", "t.csv"),
    ("a,target\n", {}, "there is no row with all its values", "gives a row"),
    (b"a,target\n1,\xff\n", {}, "UTF-8", "t.csv"),
    (b"\x89PNG\x00\xff\xfe\n\x01", {}, "cannot be read as text in UTF-8", "t.csv"),
    (f"a,target\n{'1' * 2**21},x\n", {}, "t.csv cannot be read", "t.csv"),
    (GOOD, {"image_size": 8}, "image_size 8 is for dataset image_folder;", "csv"),
    (GOOD, {"color": "rgb"}, "color rgb is for dataset image_folder;", "csv"),
]


@pytest.mark.parametrize(("text", "given", "message", "hint"), CSV_FAULTS)
def test_faults_of_csv(tmp_path: Path, text: str | bytes, given: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(Refusal) as refused:
        open_csv(tmp_path, text, **given)
    assert message in str(refused.value)
    assert hint in str(refused.value)


PARQUET_FAULTS = [
    ({"x": [1, 2], "nested": [{"a": 1}, {"a": 2}], "list": [[1], [2]], "target": [0, 1]},
     "nested (struct<a: int64>), list (list<element: int64>)", "ignore_columns 'nested,list'"),
    ({"x": [1, 2], "when": [dt.date(2026, 1, 1)] * 2, "target": [0, 1]}, "when (date32[day])", "ignore_columns"),
    ({"x": [1, 2], "target": [[0], [1]]}, "the target target is list<element: int64>, not numbers or texts", "t.parquet"),
    ({"x": [1, None, 2], "target": [0, 1, 1]}, "t.parquet: row 2: column 'x' is empty", "on_missing skip"),
    ({"x": [1.0, float("nan"), 2.0], "target": [0, 1, 1]}, "t.parquet: row 2: column 'x' is empty", "on_missing"),
    ({"x": [1.0, 2.0], "target": ["a", None]}, "t.parquet: row 2: column 'target' is empty", "on_missing"),
    ({"x": [1.0, 2.0], "target": ["a", ""]}, "t.parquet: row 2: column 'target' is empty", "on_missing"),
    ({"x": [1, 2], "target": pa.array([b"a", b"\xff"]).view("string")}, "column 'target' is not text in UTF-8", "t.p"),
    ({"x": [1.0, 1e300], "target": ["a", "b"]}, "row 2: column 'x' is not a finite number of 32 bits", "on_bad_file"),
    ({"x": [1.0, 1e30], "Targets": ["a", "b"]}, "has no column 'target'", "Did you mean 'Targets'?"),
    ({"x": range(20_000), "target": np.arange(20_000) / 7}, "more than 10,000 different values", "choose task regression"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "message", "hint"), PARQUET_FAULTS)
def test_faults_of_parquet(tmp_path: Path, columns: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(Refusal) as refused:
        open_parquet(tmp_path, columns)
    assert message in str(refused.value)
    assert hint in str(refused.value)


@pytest.mark.parametrize("damage", ["cut", "no magic", "zeros inside"])
def test_damaged_parquet(tmp_path: Path, damage: str) -> None:
    table = pa.table({"x": np.random.default_rng(0).normal(size=5000), "target": np.arange(5000) % 3})
    parquet.write_table(table, tmp_path / "t.parquet", write_page_checksum=True)
    whole = (tmp_path / "t.parquet").read_bytes()
    broken = {
        "cut": whole[: len(whole) // 2],
        "no magic": b"hello",
        "zeros inside": whole[:60] + bytes(900) + whole[960:],
    }
    (tmp_path / "t.parquet").write_bytes(broken[damage])
    with pytest.raises(Refusal, match=r"t\.parquet (is not a whole Parquet file|cannot be read)"):
        open_parquet(tmp_path)


def test_rows_that_lack_a_value_are_left_out(tmp_path: Path) -> None:
    told: list[str] = []
    text = "a,b,target\n1,2,x\n1,,x\n,3,y\n5,6,\n7,8,y\n"
    source = open_csv(tmp_path, text, skip_missing=True, note=told.append)
    assert everything(source).tolist() == [[1, 2], [7, 8]]
    assert source.labels[:].tolist() == [0, 1]
    assert told == ["3 rows lack a value and are left out"]
    with pytest.raises(Refusal, match=r"t.csv:3: column 'b' is 'abc'"):
        open_csv(tmp_path, "a,b,target\n1,,x\n1,abc,x\n1,2,x\n", skip_missing=True)


def test_bad_files_are_left_out_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,target\n9,9,only here\n" * 1 + "x,1,z\n")
    (tmp_path / "c.csv").write_text("a,other,target\n1,2,x\n")
    bad = BadFiles(skip=True)
    source = open_csv(tmp_path, GOOD, name="b.csv", bad=bad)
    assert everything(source).tolist() == [[1, 2.5], [-3, 400], [5, 6]]
    assert source.classes == ("cat", "dog")
    assert [file.path for file in bad.found] == ["a.csv", "c.csv"]
    assert "column 'a' is 'x', not a number" in bad.found[0].reason
    assert bad.found[1].reason == "lacks columns that the files before it have: b"
    (tmp_path / "b.csv").unlink()
    (tmp_path / "c.csv").unlink()
    with pytest.raises(Refusal, match=r"none of its 1 files gives a row; a.csv cannot be read"):
        open_csv(tmp_path, bad=BadFiles(skip=True))


def test_folders_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="give their folder as the input data"):
        SOURCES["csv"](SourceRequest("csv"))
    (tmp_path / "t.xlsx").touch()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(Refusal, match=r"holds no file that ends in .csv or .csv.gz, but .txt, .xlsx"):
        open_csv(tmp_path)
    with pytest.raises(Refusal, match=r"no file that ends in .parquet or .parq or .pq"):
        open_parquet(tmp_path)


def test_blocks_do_not_show(tmp_path: Path) -> None:
    """More rows than a block holds, with classes that come late, and places that are right in the last block."""
    count = 150_000
    target = np.where(np.arange(count) < 140_000, "early", "aaa late")
    source = open_csv(tmp_path, "x,target\n" + "".join(f"{n},{t}\n" for n, t in enumerate(target)))
    assert everything(source)[:, 0].tolist() == list(range(count))
    assert source.classes == ("aaa late", "early")
    assert (source.labels[:] == (target == "early")).all()
    x = np.arange(count, dtype="float64")
    x[-1] = np.nan
    with pytest.raises(Refusal, match=f"row {count}: column 'x' is empty"):
        open_parquet(tmp_path, {"x": x, "target": target})

"""Tables with categories, missing values and text labels: what is learnt from train, and the same rows for a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from shared.data.sources import SOURCES, BadFiles, ItemSource, SourceRequest
from shared.data.write.shards import plan_items
from shared.distributed import Refusal
from shared.models import ModelCard
from shared.models.build import CategoryExpansion
from shared.models.raw_rows import encode_rows

MESSY = """age,sex,code,alone,place,fate
30,male,3,true,A/5,died
,female,1,false,NA,survived
50,,3,true,B,died
10,female,?,true,B,survived
-999,male,7,false,A/5,survived
"""


def open_messy(folder: Path, text: str = MESSY, **given: Any) -> ItemSource:
    (folder / "t.csv").write_text(text)
    known = {
        "target": "fate",
        "impute_missing": True,
        "missing_values": ("?", "-999"),
        "categorical_columns": ("code",),
    }
    return SOURCES["csv"](SourceRequest("csv", folder, **(known | given)))


def encoded(source: ItemSource) -> ItemSource:
    """With all rows in train."""
    return plan_items(source, validation_fraction=0, test_fraction=0, seed=0, rows_per_shard=None).source


def everything(source: ItemSource) -> np.ndarray:
    return source.read(np.arange(len(source.labels)), BadFiles())


def card_of(source: ItemSource) -> ModelCard:
    return ModelCard("mlp", source.array.shape, "float32", source.classes, table=source.table.to_json())


def test_columns_are_what_they_hold_and_missing_cells_are_learnt(tmp_path: Path) -> None:
    source = encoded(open_messy(tmp_path))
    assert source.columns == ("age", "sex", "code", "alone", "place", "age is missing")
    values = {column.name: column.to_json().get("values") for column in source.table.columns}
    assert values == {
        "age": None,
        "sex": ["", "female", "male"],
        "code": ["", "1", "3", "7"],
        "alone": ["false", "true"],
        "place": ["", "A/5", "B"],
    }
    assert everything(source).tolist() == [
        [30, 3, 3, 2, 2, 0], [30, 2, 2, 1, 1, 1], [50, 1, 3, 2, 3, 0], [10, 2, 1, 2, 3, 0], [30, 3, 4, 1, 2, 1],
    ]  # fmt: skip
    assert source.classes == ("died", "survived")


def test_a_model_encodes_the_same_rows_alike_however_pandas_has_read_them(tmp_path: Path) -> None:
    source = encoded(open_messy(tmp_path))
    expected = everything(source)
    texts = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    assert (encode_rows(card_of(source), texts) == expected).all()
    parsed = encode_rows(card_of(source), pd.read_csv(tmp_path / "t.csv", na_values=["?"]))
    assert (parsed == expected).all()


def test_only_train_is_learnt_from_and_an_unknown_value_is_code_0(tmp_path: Path) -> None:
    rows = [f"{n},{'only in test' if n == 0 else 'ab'[n % 2]},{'xy'[n // 2 % 2]}" for n in range(12)]
    source = open_messy(tmp_path, "n,c,fate\n" + "\n".join(rows) + "\n", categorical_columns=())
    train = plan_items(source, validation_fraction=0, test_fraction=0, seed=0, rows_per_shard=None).items["train"]
    some = type(train)((), "int64")
    some.append(np.arange(1, 12))
    learnt = source.encoded(some)
    assert learnt.table.columns[1].to_json() == {"name": "c", "values": ["a", "b"]}
    assert everything(learnt)[:3].tolist() == [[0, 0], [1, 2], [2, 1]]
    frame = pd.DataFrame({"n": [1, 2], "c": ["of another world", None]})
    assert encode_rows(card_of(learnt), frame)[:, 1].tolist() == [0, 0]
    assert CategoryExpansion((0, 2))(torch.tensor([[5.0, 0.0], [6.0, 2.0]])).tolist() == [[5, 0, 0], [6, 0, 1]]


def test_what_is_inferred_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    rows = "\n".join(f"{n},,{n % 3 or ''},{'ab'[n % 2]},{'xy'[n % 2] if n else ''}" for n in range(20))
    source = encoded(open_messy(tmp_path, f"id,empty,few,c,fate\n{rows}\n", categorical_columns=(), note=told.append))
    assert source.columns == ("id", "few", "c", "few is missing")
    assert told[0] == "1 rows lack what is predicted and are left out"
    assert "rise from row to row, as identifiers do: id; leave them out with ignore_columns 'id'" in told[1]
    assert told[2:4] == ["numbers: id, few; categories: c (2)", "column 'empty' is empty in train and is left out"]
    assert "column 'few' is empty in 6 of 19 rows of train: they get its mean 1.46154" in told[4]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (300, r"name \(all 300 values in train differ: an identifier\)"),
        (2 * 256, r"name \(256 different values in train\)"),
        (10_500, r"name \(more than 10,000 different values\).*ignore_columns 'sex,name'"),
    ],
)
def test_columns_that_cannot_be_categories_are_refused_together(tmp_path: Path, count: int, message: str) -> None:
    half = count // 2 if count == 512 else count
    table = {
        "name": [f"n{n % half}" for n in range(count)],
        "sex": ["m"] * count,
        "x": list(range(count)),
        "fate": ["a", "b"] * (count // 2),
    }
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    source = SOURCES["parquet"](SourceRequest("parquet", tmp_path, target="fate", ignore_columns=("sex",)))
    with pytest.raises(Refusal, match=f"255 values are told apart: {message}"):
        encoded(source)


FAULTS = [
    ({"categorical_columns": ("codes",)}, r"no column 'codes' \(categorical_columns\).*Did you mean 'code'"),
    ({"categorical_columns": ("fate",)}, "names fate, which is the target or in ignore_columns"),
    (
        {"missing_values": ("?",), "categorical_columns": ("code",), "task": "regression"},
        "'fate' is 'died', not a number",
    ),
    (
        {"categorical_columns": (), "missing_values": ()},
        r"t.csv:5: column 'code' is '\?', not a number \(if it means a",
    ),
    ({"impute_missing": False}, "t.csv:3: column 'age' is empty.*on_missing impute"),
]


@pytest.mark.parametrize(("given", "message"), FAULTS)
def test_bad_columns(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        open_messy(tmp_path, **given)


def test_rows_that_a_model_cannot_take(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,c,fate\n1,u,x\n2,v,y\n")
    source = encoded(SOURCES["csv"](SourceRequest("csv", tmp_path, target="fate")))
    for columns, message in (
        ({"a": [1]}, "no column 'c'"),
        ({"a": ["old"], "c": ["u"]}, "column 'a' holds 'old'; it has to be a number"),
        ({"a": [1, None], "c": ["u", "v"]}, "column 'a' is empty in row 1: the model was trained on rows without"),
    ):
        with pytest.raises(ValueError, match=message):
            encode_rows(card_of(source), pd.DataFrame(columns))

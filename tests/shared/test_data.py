"""Prepared datasets: what is written comes back, in the order asked, and damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.data import Array, Dataset, Index, Statistics, batches
from shared.data.dataset import reader
from shared.data.write import remove_leftovers, splits, write_index, write_shard
from shared.data.write.splits import stratified_split
from shared.distributed import Refusal

ARRAYS = {"x": Array((2, 3), "float32"), "y": Array((), "int64")}
SIZES = (4, 1, 6)


def rows(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Rows that tell which they are."""
    return {"x": (numbers[:, None, None] + np.arange(6).reshape(2, 3) / 10).astype("float32"), "y": numbers}


def make_dataset(folder: Path) -> Path:
    """A dataset of three shards of different sizes in its train split."""
    starts = np.cumsum([0, *SIZES])
    shards = []
    for number, size in enumerate(SIZES):
        numbers = np.arange(starts[number], starts[number] + size)
        chunks = [rows(numbers[:1]), rows(numbers[1:])]
        shards.append(write_shard(folder, "train", number, rows=size, arrays=ARRAYS, chunks=chunks))
    splits = {"train": tuple(shards), "validation": (), "test": ()}
    statistics = Statistics((0.5, 1.5, 2.5), (1.0, 0.1, 1 / 3))
    write_index(folder, Index("classification", ARRAYS, ("cat", "dög"), statistics, splits))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_dataset(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("dataset"))


def test_the_index_survives_a_round_trip(folder: Path) -> None:
    index = Dataset.open(folder).index
    assert index.to_json() == (folder / "index.json").read_text(encoding="utf-8")
    assert index.classes == ("cat", "dög")
    assert index.rows("train") == sum(SIZES)
    Dataset.open(folder).verify()


@pytest.fixture(params=["held", "mapped"])
def _way_of_reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "mapped":
        monkeypatch.setattr(reader, "HELD_ARRAY_BYTES", 0)


in_both_ways = pytest.mark.usefixtures("_way_of_reading")


@in_both_ways
@given(wanted=st.lists(st.integers(0, sum(SIZES) - 1), max_size=30))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_take_returns_rows_in_the_order_asked(wanted: list[int], kept: Path) -> None:
    split = Dataset.open(kept).split("train")
    numbers = np.array(wanted, dtype=np.int64)
    taken, expected = split.take(numbers), rows(numbers)
    assert taken["x"].dtype == np.float32
    np.testing.assert_array_equal(taken["x"], expected["x"])
    np.testing.assert_array_equal(taken["y"], expected["y"])


@in_both_ways
@pytest.mark.parametrize("wanted", [[-1], [0, sum(SIZES)]])
def test_take_refuses_rows_that_do_not_exist(folder: Path, wanted: list[int]) -> None:
    with pytest.raises(IndexError, match="which has rows 0 to 10"):
        Dataset.open(folder).split("train").take(np.array(wanted))


def test_files_are_plain_npy_in_the_right_dtype(folder: Path) -> None:
    x = np.load(folder / "train" / "x-00002.npy", allow_pickle=False)
    assert (x.shape, x.dtype) == ((6, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(format="other/9"), "other/9"),
        (lambda index: index.pop("classes"), "lacks 'classes'"),
        (lambda index: index["splits"]["train"].update(rows=99), "claims 99 rows, its shards hold 11"),
        (lambda index: index["splits"]["train"]["shards"][0].update(rows=0), "claims 0 rows"),
        (lambda index: index["splits"]["train"]["shards"][0]["files"].pop("y"), "a shard has files for"),
        (lambda index: _first_x(index).update(path="../../etc/x.npy"), "leaves the dataset's folder"),
        (lambda index: _first_x(index).update(path="/etc/x.npy"), "leaves the dataset's folder"),
        (lambda index: index["arrays"]["x"].update(dtype="nonsense"), "damaged"),
    ],
)
def test_a_damaged_index_is_refused(folder: Path, change: Any, message: str) -> None:
    document = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    change(document)
    (folder / "index.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(Refusal, match=message):
        Dataset.open(folder)


def _first_x(index: dict[str, Any]) -> dict[str, Any]:
    return index["splits"]["train"]["shards"][0]["files"]["x"]


def test_folders_without_an_index_are_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(Refusal, match="not a prepared dataset"):
        Dataset.open(tmp_path_factory.mktemp("empty"))
    (folder / "index.json").unlink()
    with pytest.raises(Refusal, match="was not finished"):
        Dataset.open(folder)


def test_splits_that_do_not_exist_or_are_empty_are_refused(folder: Path) -> None:
    with pytest.raises(Refusal, match="choose one of train, validation, test"):
        Dataset.open(folder).split("training")
    with pytest.raises(Refusal, match="test_fraction above 0"):
        Dataset.open(folder).split("test")


@in_both_ways
def test_damaged_shards_are_named(folder: Path) -> None:
    path = folder / "train" / "x-00000.npy"
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(Refusal, match=r"x-00000.npy.*sha256 differs"):
        Dataset.open(folder).verify()
    path.write_bytes(whole[:-8])
    with pytest.raises(Refusal, match=r"x-00000.npy is damaged"):
        Dataset.open(folder).split("train").take(np.array([0]))
    np.save(path, np.zeros((4, 2, 3), "float64"))
    with pytest.raises(Refusal, match=r"holds float64 \(4, 2, 3\); the index says float32"):
        Dataset.open(folder).split("train").take(np.array([0]))
    path.unlink()
    with pytest.raises(Refusal, match=r"x-00000.npy cannot be read"):
        Dataset.open(folder).split("train").take(np.array([0]))


def test_an_interrupted_shard_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield rows(np.arange(2))
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_shard(tmp_path, "train", 0, rows=4, arrays=ARRAYS, chunks=broken())
    assert list((tmp_path / "train").iterdir()) == []


def test_leftovers_are_removed_and_other_files_stay(folder: Path) -> None:
    (folder / "train" / "x-00009.npy").touch()
    (folder / "train" / "mine.txt").touch()
    (folder / "notes.md").touch()
    remove_leftovers(folder)
    assert sorted(p.name for p in folder.rglob("*") if p.is_file()) == ["mine.txt", "notes.md"]


@given(rows=st.integers(1, 200), batch=st.integers(1, 50), start=st.integers(0, 10))
def test_batches_can_go_on_anywhere(rows: int, batch: int, start: int) -> None:
    if batch > rows:
        with pytest.raises(ValueError, match="does not lie between 1"):
            batches(rows, batch_size=batch, seed=0, epoch=0)
        return
    whole = list(batches(rows, batch_size=batch, seed=7, epoch=2))
    assert len(whole) == rows // batch
    assert all(len(b) == batch for b in whole)
    assert len(np.unique(np.concatenate(whole))) == len(whole) * batch
    rest = list(batches(rows, batch_size=batch, seed=7, epoch=2, start_batch=start))
    assert [list(b) for b in rest] == [list(b) for b in whole[start:]]


FRACTIONS = {"validation_fraction": 0.1, "test_fraction": 0.2, "seed": 0}


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    validation=st.sampled_from([0, 0.07, 0.1, 0.25]),
    test=st.sampled_from([0, 0.05, 0.2, 0.5]),
    seed=st.integers(0, 3),
)
@settings(max_examples=50, deadline=None)
def test_splits_are_stratified(counts: list[int], validation: float, test: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    try:
        spools = stratified_split(labels, validation_fraction=validation, test_fraction=test, seed=seed)
    except Refusal:
        assert min(counts) < 10  # only small classes leave too little to spare
        return
    assert list(spools) == ["train", "validation", "test"]
    given = {name: spool[:] for name, spool in spools.items()}
    assert sorted(np.concatenate(list(given.values()))) == list(range(len(labels)))
    assert set(labels[given["train"]]) == set(range(len(counts)))
    for name, fraction in (("validation", validation), ("test", test)):
        found = np.bincount(labels[given[name]], minlength=len(counts))
        assert -1e-9 <= found.sum() - fraction * len(labels) < 1 + 1e-9
        if min(counts) >= 10:
            assert np.abs(found - found.sum() * np.array(counts) / len(labels)).max() < 1 + 1e-9


@pytest.mark.parametrize("held", [4, 50, 10_000])
def test_more_items_than_are_shuffled_in_memory(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "SHUFFLED_ROWS", held)
    monkeypatch.setattr(splits, "BLOCK_ROWS", 7)
    labels = np.arange(300) % 3
    given = {name: spool[:] for name, spool in stratified_split(labels, **FRACTIONS).items()}
    again = stratified_split(labels, **FRACTIONS)
    assert sorted(np.concatenate(list(given.values()))) == list(range(300))
    for name, count in (("train", 210), ("validation", 30), ("test", 60)):
        np.testing.assert_array_equal(given[name], again[name][:])
        assert np.bincount(labels[given[name]]).tolist() == [count // 3] * 3
        assert np.abs(np.corrcoef(given[name], np.arange(count))[0, 1]) < 0.35, "in no order"


def test_too_few_items_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(Refusal, match="takes 1 of 3 items, but only 0 can be spared"):
        stratified_split(np.arange(3), validation_fraction=0, test_fraction=0.2, seed=0)

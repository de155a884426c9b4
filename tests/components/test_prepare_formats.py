"""The same data in every format gives the same shards, byte for byte, and the same splits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shared.data import Dataset
from tests.components.support import run_component
from tests.components.test_prepare_data import SHAPES, content
from tests.shared import samples


def prepare(folder: Path, dataset: str, *arguments: object, nodes: int = 1, processes: int = 1) -> Path:
    output = folder.with_name(f"{folder.name}-prepared-{nodes}x{processes}")
    data = () if dataset == "digits" else ("--data", folder)
    finished = run_component(
        "prepare_data", "--output-data", output, "--dataset", dataset, *data, *arguments,
        folder=folder.parent, nodes=nodes, processes=processes,
    )  # fmt: skip
    assert finished.ok, finished.output
    return output


def shards(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in content(folder).items() if name.endswith(".npy")}


@pytest.mark.slow
def test_images_of_8x8_in_every_format_that_can_hold_them(tmp_path: Path) -> None:
    images, labels = samples.digits()
    expected = content(prepare(tmp_path / "digits", "digits", "--rows-per-shard", 500))
    for dataset, write in samples.IMAGE_WRITERS.items():
        write(tmp_path / dataset, images, labels)
        color = ("--color", "grayscale") if dataset == "image_folder" else ()
        # The index is the same too: classes, statistics, sha256.
        assert content(prepare(tmp_path / dataset, dataset, "--rows-per-shard", 500, *color)) == expected, dataset


@pytest.mark.slow
def test_rows_of_64_numbers_in_every_format_that_can_hold_them(tmp_path: Path) -> None:
    images, labels = samples.digits()
    rows = images.reshape(-1, 64)
    of_images = Dataset.open(prepare(tmp_path / "digits", "digits", "--rows-per-shard", 500))
    outputs = {}
    for dataset, write in (("npy", samples.write_npy), ("csv", samples.write_csv), ("parquet", samples.write_parquet)):
        write(tmp_path / dataset, rows.astype("float32" if dataset == "npy" else "uint8"), labels)
        outputs[dataset] = prepare(tmp_path / dataset, dataset, "--rows-per-shard", 500)
    assert shards(outputs["npy"]) == shards(outputs["csv"]) == shards(outputs["parquet"])
    assert content(outputs["csv"]) == content(outputs["parquet"])
    for name in ("train", "validation", "test"):
        of_table, of_digits = (data.split(name) for data in (Dataset.open(outputs["csv"]), of_images))
        everything = np.arange(of_table.rows)
        expected, found = of_digits.take(everything), of_table.take(everything)
        np.testing.assert_array_equal(found["x"], expected["x"].reshape(-1, 64))
        np.testing.assert_array_equal(found["y"], expected["y"])
    index = json.loads((outputs["csv"] / "index.json").read_text())
    assert index["columns"] == [f"p{number:02d}" for number in range(64)]


@pytest.mark.slow
def test_the_number_of_ranks_changes_nothing(tmp_path: Path) -> None:
    images, labels = samples.digits()
    samples.write_csv(tmp_path / "csv", images.reshape(-1, 64), labels)
    arguments = ("--rows-per-shard", 300, "--task", "regression")
    contents = [
        content(prepare(tmp_path / "csv", "csv", *arguments, nodes=nodes, processes=processes))
        for nodes, processes in SHAPES
    ]
    assert contents[0] == contents[1] == contents[2]


def test_a_regression_has_its_target_in_the_index(tmp_path: Path) -> None:
    images, labels = samples.digits()
    samples.write_parquet(tmp_path / "table", images.reshape(-1, 64), labels)
    dataset = Dataset.open(prepare(tmp_path / "table", "parquet", "--task", "regression", "--target", "p20"))
    dataset.verify()
    train = dataset.split("train")
    y = train.take(np.arange(train.rows))["y"]
    assert (dataset.index.task, dataset.index.classes, y.dtype) == ("regression", (), np.float64)
    assert dataset.index.target.name == "p20"
    assert dataset.index.columns[-1] == "target"
    np.testing.assert_allclose((dataset.index.target.mean, dataset.index.target.std), (y.mean(), y.std()), rtol=1e-12)
    samples.write_npy(tmp_path / "npy", images.reshape(-1, 64), labels.astype("float32") / 2)
    assert Dataset.open(prepare(tmp_path / "npy", "npy", "--task", "regression")).index.target is not None

"""prepare_data with real ranks: the same bytes on any number of them, and one clear sentence when it cannot be."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shared.data import Dataset
from tests.components.support import Finished, run_component
from tests.helpers import ROOT, clean_environment
from tests.local.support import carrying
from tests.waiting import wait_for

SHAPES = ((1, 1), (1, 2), (2, 2))


def content(folder: Path) -> dict[str, str]:
    """Every file of a folder with its sha256."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def prepare(folder: Path, *arguments: object, nodes: int = 1, processes: int = 1) -> tuple[Finished, Path]:
    output = folder / f"output-{nodes}x{processes}"
    finished = run_component(
        "prepare_data", "--output-data", output, *arguments, folder=folder, nodes=nodes, processes=processes
    )
    return finished, output


@pytest.mark.slow
def test_digits_are_the_same_bytes_on_any_number_of_ranks(tmp_path: Path) -> None:
    contents = []
    for nodes, processes in SHAPES:
        finished, output = prepare(tmp_path, "--rows-per-shard", 200, nodes=nodes, processes=processes)
        assert finished.ok, finished.output
        assert finished.output.count("prepared digits: train 1257, validation 180, test 360 rows") == 1
        contents.append(content(output))
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == 1 + 2 * (7 + 1 + 2)


def test_what_was_prepared_is_the_source(tmp_path: Path) -> None:
    x = np.arange(40 * 3, dtype="float32").reshape(40, 3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.tile([7, 9], 20))
    finished, output = prepare(tmp_path, "--dataset", "npy", "--data", tmp_path, "--rows-per-shard", 3, processes=2)
    assert finished.ok, finished.output
    dataset = Dataset.open(output)
    dataset.verify()
    assert dataset.index.classes == ("7", "9")
    splits = {name: dataset.split(name) for name in ("train", "validation", "test")}
    taken = {name: split.take(np.arange(split.rows)) for name, split in splits.items()}
    together = np.concatenate([part["x"] for part in taken.values()])
    np.testing.assert_array_equal(together[np.argsort(together[:, 0])], x)
    for part in taken.values():
        np.testing.assert_array_equal(part["y"], (part["x"][:, 0] / 3).astype(int) % 2)
    np.testing.assert_allclose(dataset.index.statistics.mean, taken["train"]["x"].mean(0, dtype="float64"), rtol=1e-12)


def test_another_seed_gives_other_splits(tmp_path: Path) -> None:
    first = prepare(tmp_path, "--seed", 0)[1]
    index = (first / "index.json").read_text(encoding="utf-8")
    again = prepare(tmp_path, "--seed", 1)[1]
    assert (again / "index.json").read_text(encoding="utf-8") != index


@pytest.mark.slow
def test_leftovers_of_an_interrupted_attempt_are_gone(tmp_path: Path) -> None:
    _, clean = prepare(tmp_path, nodes=1, processes=2)
    dirty = tmp_path / "output-2x1"
    (dirty / "train").mkdir(parents=True)
    (dirty / "train" / "x-00077.npy").write_bytes(b"old")
    (dirty / "train" / "x-00000-short.npy").write_bytes(b"half")
    (dirty / "index.json").write_text("{}", encoding="utf-8")
    finished, _ = prepare(tmp_path, nodes=2)
    assert finished.ok, finished.output
    assert content(dirty) == content(clean)


@pytest.mark.slow
def test_enough_images_are_decoded_by_several_processes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(2_100):
        path = tmp_path / "images" / f"class {number % 3}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (5, 5), np.uint8)).save(path)
    arguments = ("--dataset", "image_folder", "--data", tmp_path / "images", "--color", "grayscale")
    contents = []
    for nodes in (1, 2):  # one node has enough for worker processes, half of it has not
        finished, output = prepare(tmp_path, *arguments, "--rows-per-shard", 300, nodes=nodes)
        assert finished.ok, finished.output
        contents.append(content(output))
    assert contents[0] == contents[1]
    assert Dataset.open(output).index.arrays["x"].shape == (5, 5, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dataset", "npy"), "give their folder as the input data"),
        (("--test-fraction", 0.7, "--validation-fraction", 0.4), "validation_fraction 0.4 + test_fraction 0.7 = 1.1"),
        (("--seed", -1, "--rows-per-shard", 0), "seed -1: 0 to 4294967295"),
    ],
)
def test_a_refusal_is_printed_once(tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    finished, output = prepare(tmp_path, *arguments, processes=2)
    assert finished.codes == (2, 2)
    assert finished.output.count(message) == 1
    assert "Traceback" not in finished.output
    assert not (output / "index.json").exists()


@pytest.mark.slow
def test_a_refusal_met_by_one_node_is_printed_once_and_ends_all(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(8):
            side = 9 if (name, number) == ("b", 7) else 4
            Image.new("RGB", (side, side)).save(tmp_path / "images" / name / f"{number}.png")
    arguments = ("--dataset", "image_folder", "--data", tmp_path / "images", "--rows-per-shard", 2)
    finished, output = prepare(tmp_path, *arguments, nodes=2, processes=2)
    assert finished.codes == (2, 2, 2, 2)
    assert finished.output.count("images differ in size") == 1
    assert "the first is 4x4" in finished.output
    assert "b/7.png is 9x9" in finished.output
    assert not (output / "index.json").exists()
    assert not list(output.rglob("*.part"))


def test_worker_processes_end_with_a_killed_rank(tmp_path: Path) -> None:
    (tmp_path / "images" / "a").mkdir(parents=True)
    Image.new("RGB", (1500, 1500)).save(tmp_path / "big.png")
    for number in range(2_100):
        (tmp_path / "images" / "a" / f"{number}.png").symlink_to(tmp_path / "big.png")
    arguments = ("--dataset", "image_folder", "--data", tmp_path / "images", "--rows-per-shard", 100, "--image-size", 4)
    command = [sys.executable, ROOT / "components" / "prepare_data" / "prepare_data.py", *map(str, arguments)]
    environment = clean_environment({"TEST_FOLDER": str(tmp_path)})  # which a rank's helpers inherit
    rank = subprocess.Popen([*command, "--output-data", tmp_path / "output"], cwd=tmp_path, env=environment)
    try:
        wait_for(lambda: list(tmp_path.glob("output/train/*.npy")))
        assert len(carrying(f"TEST_FOLDER={tmp_path}")) >= 3
    finally:
        rank.kill()
        rank.wait()
    wait_for(lambda: not carrying(f"TEST_FOLDER={tmp_path}"))
    assert not (tmp_path / "output" / "index.json").exists()

"""Whoever reads and writes on a mounted blob store tries again: here each operation fails the first time on each file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared import storage
from shared.cluster.page import write_survey
from shared.cluster.survey import AllReduce, ClusterSurvey
from shared.data.sources import SOURCES, SourceRequest
from shared.data.text.sources import TEXT_SOURCES
from shared.data.text.tokens import SubwordTokens, train_subwords
from shared.data.write.request import BadFiles
from shared.data.write.splits import DocumentSplitter
from shared.models import ModelCard, load_model, save_model
from shared.models.package import from_card
from shared.models.predictor import read_card, tokenizer_of_model
from shared.models.published import read_published
from shared.storage import list_folder, open_file
from shared.tensors import write_safetensors
from tests.blob_mount import BlobFaults, blob_mount, can_mount
from tests.shared import samples

pytestmark = pytest.mark.skipif(not can_mount(), reason="mounting with FUSE needs root and /dev/fuse")

FAULTS = BlobFaults(first=True, direct=True, rename="refuse", append=False)
ROWS = 30


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with blob_mount(tmp_path_factory.mktemp("blob"), FAULTS) as place:
        yield place


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_PAUSES", (0.001,) * 4)


def behind(mount: Path, name: str) -> Path:
    """The folder that the mount shows under this name, where nothing fails."""
    folder = mount.parent / "behind" / name
    folder.mkdir()
    return folder


def test_a_file_object_reads_as_one_of_the_disk(mount: Path) -> None:
    content = np.random.default_rng(0).bytes(200_001)
    (behind(mount, "plain") / "a").write_bytes(content)
    with pytest.raises(OSError, match="Input/output error"), (mount / "plain" / "a").open("rb"):
        pass
    with pytest.raises(OSError, match="Input/output error"), (mount / "plain" / "a").open("rb") as file:
        file.read()
    (behind(mount, "object") / "a").write_bytes(content)
    with open_file(mount / "object" / "a") as file:
        assert file.read(5) == content[:5]
        assert file.seek(-70_000, 2) == 130_001
        assert file.read(69_000) == content[130_001:199_001]
        assert file.read() == content[199_001:]
        assert file.read() == b""
        file.seek(3)
        assert file.readline(10) == content[3:13].partition(b"\n")[0] + (b"\n" if b"\n" in content[3:13] else b"")


def zipped(folder: Path) -> None:
    """Pack each file of a folder, in the place of itself."""
    for path in list_folder(folder):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


WRITERS: dict[str, Callable[[Path], object]] = {
    "image_folder": lambda folder: samples.write_image_folder(folder, *images()),
    "npy": lambda folder: samples.write_npy(folder, *images()),
    "csv": lambda folder: samples.write_csv(folder, *table()),
    "csv zipped": lambda folder: (samples.write_csv(folder, *table()), zipped(folder)),
    "parquet": lambda folder: samples.write_parquet(folder, *table()),
}


def images() -> tuple[Any, Any]:
    pixels, labels = samples.digits()
    return pixels[:ROWS], labels[:ROWS]


def table() -> tuple[Any, Any]:
    pixels, labels = images()
    return np.hstack([pixels.reshape(ROWS, -1)[:, 20:30], np.arange(ROWS)[:, None] % 7]).astype(np.uint8), labels


@pytest.mark.parametrize("name", WRITERS)
def test_a_source_gives_the_rows_that_it_gives_from_a_disk(name: str, mount: Path) -> None:
    dataset, items = name.partition(" ")[0], np.array([*range(ROWS - 5), 3, 2, 29])
    folder = behind(mount, name)
    WRITERS[name](folder)
    expected = SOURCES[dataset](SourceRequest(dataset, folder))
    bad = BadFiles(skip=True)
    found = SOURCES[dataset](SourceRequest(dataset, mount / name, bad=bad))
    np.testing.assert_array_equal(found.read(items, bad), expected.read(items, BadFiles()))
    np.testing.assert_array_equal(found.labels[:], expected.labels[:])
    assert bad.found == []


def test_pictures_are_kept_as_their_files_are(mount: Path) -> None:
    folder = behind(mount, "encoded")
    samples.write_image_folder(folder, *images())
    request: dict[str, Any] = {"keeps_encoded": True, "image_size": 6, "bad": BadFiles(skip=True)}
    found, expected = (
        SOURCES["image_folder"](SourceRequest("image_folder", place, **request))
        for place in (mount / "encoded", folder)
    )
    every = np.arange(ROWS)
    assert found.read_encoded(every, BadFiles())[0] == expected.read_encoded(every, BadFiles())[0]  # type: ignore[attr-defined]


def write_texts(folder: Path, dataset: str, texts: list[str]) -> None:
    if dataset == "files":
        for number, text in enumerate(texts):
            (folder / "deep" / f"{number % 3}").mkdir(parents=True, exist_ok=True)
            (folder / "deep" / f"{number % 3}" / f"{number}.txt").write_text(text)
    elif dataset == "jsonl":
        (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif dataset == "csv":
        (folder / "a.csv").write_text("text\n" + "".join(f"{text}\n" for text in texts))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table({"text": texts}), folder / "a.parquet")


@pytest.mark.parametrize("dataset", ["files", "jsonl", "csv", "parquet"])
def test_documents_come_whole_and_none_is_left_out(dataset: str, mount: Path) -> None:
    texts = [f"text number {number}" for number in range(ROWS)]
    write_texts(behind(mount, f"texts {dataset}"), dataset, texts)
    bad = BadFiles(skip=True)
    request = SourceRequest(dataset, mount / f"texts {dataset}", False, DocumentSplitter(0, 0.2, 0.2), bad=bad)
    source = TEXT_SOURCES[dataset](request)
    found = [document.text for unit in range(len(source.sizes)) for document in source.read(unit, bad)]
    assert (sorted(found), bad.found) == (sorted(texts), [])


def test_tokenizers_and_published_weights_are_read(mount: Path) -> None:
    folder = behind(mount, "weights")
    tensors = {"a": np.arange(7.0), "b": np.ones((2, 3), "float32")}
    write_safetensors(folder / "model.safetensors", tensors)
    found = read_published(mount / "weights").tensors
    assert all(np.array_equal(found[name].numpy(), tensors[name]) for name in tensors)
    made = train_subwords(["some text " * 9], 300)
    for name, content in made.items():
        (folder / name).write_text(content)
    assert SubwordTokens.open(mount / "weights").files().keys() == made.keys()


def test_a_saved_model_is_found_and_loaded(mount: Path) -> None:
    card = ModelCard("mlp", (8, 8, 1), "uint8", ("a", "b", "c"), (4.9,), (6.0,))
    save_model(behind(mount, "model"), from_card(card), card)
    assert read_card(mount / "model").architecture == "mlp"
    assert tokenizer_of_model(mount / "model", card) == card.tokenizer
    assert load_model(mount / "model")[1].classes == card.classes


def test_a_survey_of_the_cluster_is_written(mount: Path) -> None:
    machine = {"rank": 0, "node": 0, "host": "here", "device": {"name": "CPU"}, "infiniband": []}
    write_survey(mount / "survey", ClusterSurvey("gloo", [machine], [], [AllReduce.of(16, 0.001, 2)], []))
    written = mount.parent / "behind" / "survey"
    assert {path.name for path in written.iterdir()} == {
        *("cluster.json", "all_reduce.csv", "pairs.csv", "all_reduce.png", "index.html")
    }

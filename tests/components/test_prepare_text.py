"""prepare_text with real ranks: the same bytes on any number of them and from any format, and what cannot be."""

from __future__ import annotations

import csv
import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from shared.data import Dataset
from shared.data.text.tokens import SubwordTokens, train_subwords
from shared.data.write.splits import DocumentSplitter
from tests.components.support import Finished, run_component
from tests.components.test_prepare_data import content

PRINT_PEAK = "import atexit, resource; atexit.register(lambda: print('PEAK', resource.getrusage(0).ru_maxrss))"
SHAPES = ((1, 1), (1, 2), (2, 2), (3, 1))
WORDS = {"animal": ("cat", "dog", "bird", "fish", "horse"), "tool": ("saw", "axe", "drill", "hammer", "żaba")}


def write_files(folder: Path, count: int = 60) -> Path:
    """Documents of 1 to 400 words, in folders by class; each begins with its own number."""
    draw = random.Random(0)
    for number in range(count):
        name = tuple(WORDS)[number % 2]
        path = folder / name / f"{number:03d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        words = " ".join(draw.choice(WORDS[name]) for _ in range(draw.randint(1, 400)))
        path.write_text(f"[{number:03d}]{words}\n", encoding="utf-8")
    return folder


def documents_of(folder: Path) -> list[tuple[str, str]]:
    return [(path.read_text(encoding="utf-8"), path.parent.name) for path in sorted(folder.rglob("*.txt"))]


def prepare(
    folder: Path,
    *arguments: object,
    nodes: int = 1,
    processes: int = 1,
    unit: int = 16 * 2**20,
    report_seconds: float = 1,
    before: str = "pass",
) -> tuple[Finished, Path]:
    """Run the component's ranks with units of so many bytes, so that a small folder has many, and such reports."""
    output = folder / f"output-{nodes}x{processes}"
    patch = f"""{before}
        from shared import tracking
        from shared.data.formats import json_lines, parquet_files
        from shared.data.text import files
        tracking.REPORT_SECONDS = {report_seconds}
        for module in (files, json_lines, parquet_files):
            module.UNIT_BYTES = {unit}"""
    words = ("--output-data", output, *arguments)
    run = run_component("prepare_text", *words, folder=folder, nodes=nodes, processes=processes, before=patch)
    return run, output


def succeed(folder: Path, *arguments: object, **how: Any) -> Path:
    finished, output = prepare(folder, *arguments, **how)
    assert finished.ok, finished.output
    return output


def stream_of(dataset: Dataset, name: str) -> np.ndarray:
    """The tokens of a split, put together again from its blocks."""
    split = dataset.split(name)
    x = split.take(np.arange(split.rows))["x"]
    np.testing.assert_array_equal(x[:-1, -1], x[1:, 0])
    return np.concatenate([x[0, :1], x[:, 1:].ravel()])


@pytest.mark.slow
def test_blocks_are_the_same_bytes_on_any_number_of_ranks(tmp_path: Path) -> None:
    texts = write_files(tmp_path / "texts")
    arguments = ("--dataset", "files", "--data", texts, "--sequence-length", 50, "--rows-per-shard", 100)
    contents = []
    for nodes, processes in SHAPES:
        output = succeed(tmp_path, *arguments, nodes=nodes, processes=processes, unit=3000)
        contents.append(content(output))
    assert all(one == contents[0] for one in contents)
    assert len(list((output / "train").glob("x-*.npy"))) > 15

    dataset = Dataset.open(output)
    dataset.verify()
    index, text = dataset.index, dataset.index.text
    assert (index.task, index.classes, index.arrays["x"].shape, index.arrays["x"].dtype) == (
        "language_modeling", (), (51,), "uint16")  # fmt: skip
    names = [str(path.relative_to(texts)) for path in sorted(texts.rglob("*.txt"))]
    splits = DocumentSplitter(0, 0.1, 0.1).split_all(names, [""] * len(names))
    assert (splits.count("validation"), splits.count("test")) == (6, 6)
    for split in ("train", "validation", "test"):
        mine = [one.encode() for (one, _), where in zip(documents_of(texts), splits, strict=True) if where == split]
        whole = np.concatenate([np.append(np.frombuffer(one, np.uint8).astype(int), 256) for one in mine])
        stream = stream_of(dataset, split)
        assert len(whole) - 50 < len(stream) <= len(whole)
        np.testing.assert_array_equal(stream, whole[: len(stream)])
        assert text.tokens[split] == len(whole)
        assert text.size[split] == sum(map(len, mine))

    joined = b"".join(
        one.encode() for (one, _), where in zip(documents_of(texts), splits, strict=True) if where == "test"
    )
    one, two = (succeed(tmp_path, *arguments, nodes=nodes) for nodes in (1, 2))  # one unit: one stream of gzip
    assert content(one) == content(two), "a node may have nothing to do"
    whole_text = Dataset.open(one).index.text
    assert whole_text.gzip_size["test"] == len(gzip.compress(joined, 9))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["language_modeling", "text_classification"])
def test_a_learnt_tokenizer_is_the_same_bytes_on_any_number_of_ranks(tmp_path: Path, task: str) -> None:
    texts = write_files(tmp_path / "texts")
    arguments = ("--dataset", "files", "--data", texts, "--task", task, "--vocabulary", 300, "--sequence-length", 20)
    outputs = [succeed(tmp_path, *arguments, nodes=nodes, processes=2, unit=9000) for nodes in (1, 2)]
    assert content(outputs[0]) == content(outputs[1])
    dataset = Dataset.open(outputs[0])
    dataset.verify()
    text = dataset.index.text
    assert text.tokenizer == "tokenizer"
    assert text.tokens["train"] < text.size["train"] / 2
    tokens = SubwordTokens.open(outputs[0])
    assert tokens.sha256 == text.fingerprint
    split = dataset.split("test")
    row = split.take(np.array([0]))["x"][0]
    assert tokens._tokenizer.decode(row.tolist()).startswith("[")


@pytest.mark.slow
def test_passages_know_their_class_and_stay_in_one_split(tmp_path: Path) -> None:
    texts = write_files(tmp_path / "texts")
    arguments = ("--dataset", "files", "--data", texts, "--task", "text_classification", "--sequence-length", 64)
    contents = []
    for nodes, processes in SHAPES[::2]:
        output = succeed(tmp_path, *arguments, "--rows-per-shard", 40, nodes=nodes, processes=processes, unit=5000)
        contents.append(content(output))
    assert all(one == contents[0] for one in contents)
    dataset = Dataset.open(output)
    dataset.verify()
    assert dataset.index.classes == ("animal", "tool")
    numbers: dict[str, set[bytes]] = {}
    together = b""
    for name in ("train", "validation", "test"):
        split = dataset.split(name)
        taken = split.take(np.arange(split.rows))
        assert set(taken["y"]) == {0, 1}
        assert taken["x"].shape[1] == 64
        rows = [bytes(row[:n].astype("uint8")) for row, n in zip(taken["x"], taken["lengths"], strict=True)]
        numbers[name] = {row[1:4] for row in rows if row[:1] == b"["}
        together += b"".join(rows)
        for row, label in zip(rows, taken["y"], strict=True):
            words = row.decode("utf-8", "replace").split(" ")[1:-1]
            assert all(word in WORDS[("animal", "tool")[label]] for word in words)
    assert len(numbers["train"] | numbers["validation"] | numbers["test"]) == sum(map(len, numbers.values())) == 60
    assert len(together) == sum(len(text.encode()) for text, _ in documents_of(texts))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["language_modeling", "text_classification"])
def test_every_format_gives_the_same_dataset(tmp_path: Path, task: str) -> None:
    documents = [(f"{number} " + text * 2, name) for number in range(4) for text, name in write_and_read(tmp_path)]
    rows = [{"label": name, "other": 1, "text": text} for text, name in documents]
    for kind in ("jsonl", "zipped", "csv", "parquet"):
        (tmp_path / kind).mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "jsonl" / "a.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "zipped" / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    with (tmp_path / "csv" / "a.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "parquet" / "a.parquet", row_group_size=50)
    contents = []
    for kind in ("jsonl", "zipped", "csv", "parquet"):
        dataset = "jsonl" if kind == "zipped" else kind
        arguments = ("--dataset", dataset, "--data", tmp_path / kind, "--task", task, "--sequence-length", 100)
        contents.append(content(succeed(tmp_path, *arguments)))
    assert all(one == contents[0] for one in contents)


@pytest.mark.parametrize("dataset", ["jsonl", "parquet"])
def test_nodes_share_the_parts_of_one_file(tmp_path: Path, dataset: str) -> None:
    rows = [{"text": text, "label": name} for text, name in write_and_read(tmp_path)]
    (tmp_path / "data").mkdir()
    if dataset == "jsonl":
        (tmp_path / "data" / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / "a.parquet", row_group_size=5)
    arguments = ("--dataset", dataset, "--data", tmp_path / "data", "--sequence-length", 30)
    one, two = (succeed(tmp_path, *arguments, nodes=nodes, unit=4000) for nodes in (1, 2))
    assert content(one) == content(two)
    assert len(list((one / "train").iterdir())) > 5


def write_and_read(folder: Path) -> list[tuple[str, str]]:
    return documents_of(write_files(folder / "texts"))


@pytest.mark.slow
def test_the_sample_is_the_standard_library(tmp_path: Path) -> None:
    output = succeed(tmp_path, processes=2)
    index = Dataset.open(output).index
    assert 5e6 < sum(index.text.size.values()) < 2e7
    assert 1.5 < index.text.gzip_bits_per_byte("test") < 2.5
    output = succeed(tmp_path, "--task", "text_classification")
    index = Dataset.open(output).index
    assert index.classes == ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")
    assert index.rows("test") > 200


def test_a_tokenizer_folder_goes_into_the_dataset(tmp_path: Path) -> None:
    texts, folder = write_files(tmp_path / "texts"), tmp_path / "model"
    folder.mkdir()
    for name, text in train_subwords([text for text, _ in documents_of(texts)], 320).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    arguments = ("--dataset", "files", "--data", texts, "--tokenizer", folder, "--sequence-length", 20)
    output = succeed(tmp_path, *arguments)
    assert {path.name for path in (output / "tokenizer").iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
    (output / "tokenizer" / "tokenizer.json").write_text("{}")
    succeed(tmp_path, *arguments)  # again into the same folder, and with bytes: nothing old stays
    Dataset.open(output).verify()
    succeed(tmp_path, *arguments[:4])
    assert not list((output / "tokenizer").iterdir())


@pytest.mark.slow
def test_bad_documents_are_left_out_alike_on_any_number_of_ranks(tmp_path: Path) -> None:
    texts = write_files(tmp_path / "texts")
    (texts / "tool" / "latin.txt").write_bytes(b"caf\xe9")
    (texts / "animal" / "large.txt").write_bytes(b"x" * 5000)
    arguments = ("--dataset", "files", "--data", texts, "--max-megabytes", 0.0045, "--sequence-length", 40)
    contents = []
    for nodes, processes in SHAPES[::2]:
        finished, output = prepare(
            tmp_path, *arguments, "--on-bad-file", "skip", nodes=nodes, processes=processes, unit=4000
        )
        assert finished.ok, finished.output
        assert finished.output.count("left out: tool/latin.txt is not text in UTF-8: byte 3 is 0xe9") == 1
        assert finished.output.count("2 bad documents were left out; skipped.csv") == 1
        contents.append(content(output))
    assert contents[0] == contents[1]
    with (output / "skipped.csv").open(newline="") as file:
        assert [row["path"] for row in csv.DictReader(file)] == ["animal/large.txt", "tool/latin.txt"]

    finished, output = prepare(tmp_path, *arguments, nodes=2, processes=2, unit=4000)
    assert finished.codes == (2, 2, 2, 2)
    assert finished.output.count("error: ") == 1
    assert "or leave out such files with on_bad_file skip." in finished.output
    assert "Traceback" not in finished.output
    assert not list(output.rglob("*.part"))
    assert not (output / "index.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (("--dataset", "files"), ["give them as the input data"]),
        (("--data", "."), ["data was given, but dataset stdlib reads none"]),
        (("--dataset", "files", "--data", "nowhere"), ["there is no file or folder nowhere"]),
        (
            ("--seed", -1, "--sequence-length", 1, "--vocabulary", 10, "--tokenizer", ".", "--pattern", "*.txt",
             "--validation-fraction", 0.9, "--test-fraction", 0.9, "--max-megabytes", 0, "--rows-per-shard", 0),
            ["seed -1", "sequence_length 1", "vocabulary 10: 300 to", "is for dataset files",
             "= 1.8", "max_megabytes 0", "rows_per_shard 0"],
        ),
        (("--dataset", "files", "--data", "texts", "--tokenizer", "texts"), ["holds no tokenizer.json, but animal"]),
        (("--dataset", "files", "--data", "texts", "--sequence-length", 9000), ["test has 8", "lower it; raise test_fraction, or set it to 0"]),
        (("--dataset", "files", "--data", "texts/animal", "--task", "text_classification"), ["lie in no folder"]),
        (
            ("--dataset", "files", "--data", "one", "--task", "text_classification"),
            ["the documents have 1 classes (animal)"],
        ),
        (("--dataset", "jsonl", "--data", "few"), ["train has 4 tokens, but a row takes 257", "test has none of the 3 documents; raise test_fraction"]),
    ],
)  # fmt: skip
def test_a_refusal_is_printed_once(tmp_path: Path, arguments: tuple[object, ...], messages: list[str]) -> None:
    texts = write_files(tmp_path / "texts")
    (tmp_path / "one").mkdir()
    shutil.copytree(texts / "animal", tmp_path / "one" / "animal")
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n')
    finished = run_component(
        "prepare_text", "--output-data", tmp_path / "output", *arguments, folder=tmp_path, processes=2
    )
    assert finished.codes == (2, 2), finished.output
    for message in messages:
        assert finished.output.count(message) == 1, finished.output
    assert "Traceback" not in finished.output
    assert not (tmp_path / "output" / "index.json").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    draw = random.Random(0)
    pieces = [draw.randbytes(600).hex() for _ in range(50)]
    peaks = []
    for rows in (5_000, 30_000):  # 6 and 36 MB
        folder = tmp_path / str(rows)
        folder.mkdir()
        with (folder / "a.jsonl").open("w") as file:
            for number in range(rows):
                file.write(json.dumps({"text": f"{number} {pieces[number % 50]}"}) + "\n")
        finished, _ = prepare(folder, "--dataset", "jsonl", "--data", folder, unit=2**20, before=PRINT_PEAK)
        assert finished.ok, finished.output
        peaks.append(int(finished.output.partition("PEAK ")[2].split()[0]) * 1024)
    assert peaks[1] - peaks[0] < 10 * 2**20, peaks


def test_progress_is_reported_in_bytes_and_then_in_rows(tmp_path: Path) -> None:
    """Each moment's, since how much of it a machine does in the second between two reports is not known."""
    texts = write_files(tmp_path / "texts")
    size = sum(path.stat().st_size for path in texts.rglob("*.txt"))
    dataset = Dataset.open(succeed(tmp_path, "--dataset", "files", "--data", texts, report_seconds=0))
    lines = [json.loads(line) for line in (tmp_path / "outputs" / "metrics.jsonl").read_text().splitlines()]
    reports = {what: [line for line in lines if f"{what}_per_second" in line["metrics"]] for what in ("bytes", "rows")}
    rows = sum(len(dataset.split(split)) for split in ("train", "validation", "test"))
    for what, total in (("bytes", size), ("rows", rows)):
        assert {line["total"] for line in reports[what]} == {total}
        assert reports[what][-1]["step"] == total


def test_documents_that_are_kept_apart_are_said_in_the_index_alone(tmp_path: Path) -> None:
    arguments = ("--dataset", "files", "--data", write_files(tmp_path / "texts"), "--sequence-length", 50)
    (tmp_path / "separate").mkdir()
    joined = succeed(tmp_path, *arguments)
    separate = succeed(tmp_path / "separate", *arguments, "--documents", "separate")
    texts = [Dataset.open(output).index.text for output in (joined, separate)]
    assert [text and (text.documents, text.separator) for text in texts] == [("joined", -1), ("separate", 256)]
    one, other = content(joined), content(separate)
    assert {name for name in one if one[name] != other[name]} == {"index.json"}
    finished, _ = prepare(tmp_path, "--task", "text_classification", "--documents", "separate")
    assert finished.codes == (2,)
    assert "documents separate is for language_modeling" in finished.output

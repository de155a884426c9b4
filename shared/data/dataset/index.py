"""What `index.json` says, as frozen dataclasses, and its text; read, it is checked, since it may come from anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from shared.data.dataset.encodings import TableEncoding, TextEncoding
from shared.distributed import Refusal
from shared.storage import JSON_BYTES, read_bytes

DATASET_FORMAT = "allranks-dataset/1"
INDEX_FILE = "index.json"
SPLITS = ("train", "validation", "test")
TEXT_TASKS = ("language_modeling", "text_classification")
_TASKS = ("classification", "regression", *TEXT_TASKS)
DOCUMENT_USES = ("joined", "separate")
BYTE_TOKENIZER = "bytes"
"""The tokenizer that needs no file: ids 0 to 255 are the bytes of UTF-8, 256 is the end of a text and padding."""
TOKENIZER_FOLDER = "tokenizer"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_FILES = (
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
)
"""What is copied of a tokenizer's folder; a model's weights may lie beside them."""


@dataclass(frozen=True, slots=True)
class Array:
    """One row of an array: its shape without the row axis, and its NumPy dtype by name.

    Attributes:
        ragged: whether rows differ in length, along an axis in front of ``shape``. Such an array is two files for each
            shard: the values of all rows one after another, and where each begins and ends in them (rows + 1, int64).
        most_pixels: of pictures that lie as the bytes of JPEG or PNG files, in two files for each shard as well: the
            most that one may have where it is decoded, to a row of this shape. 0: the rows lie as numbers.
    """

    shape: tuple[int, ...]
    dtype: str
    ragged: bool = False
    most_pixels: int = 0

    @property
    def is_encoded(self) -> bool:
        """Whether rows are pictures that are decoded when they are read."""
        return self.most_pixels > 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and standard deviation of ``x`` over the train split, for each channel (the last axis), in raw units.

    A channel that never changes has a standard deviation of 0.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What a regression predicts: the column's name, and mean and standard deviation of ``y`` over the train split."""

    name: str
    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of the dataset: its path relative to the dataset's folder, with slashes, and its sha256 in hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive rows of a split: one file for each array."""

    rows: int
    files: Mapping[str, ShardFile]


@dataclass(frozen=True, slots=True)
class Index:
    """The whole of `index.json`.

    Attributes:
        task: ``classification`` or ``regression``, with arrays ``x`` and ``y``: int64, a position in ``classes``; or
            float64, a value in its own units. ``text_classification``: ``x`` is ragged, token ids, and ``y`` as for
            classes. ``language_modeling``: ``x`` alone, rows of ``text.sequence_length + 1`` token ids; row i begins
            at token ``i * sequence_length`` of the split's stream, so each token but the first is predicted once.
        arrays: name to shape and dtype.
        classes: names of the classes, in the order of the labels; none where no class is predicted.
        statistics: of ``x``, over the train split; None for text.
        splits: train, validation and test to their shards, in row order; a split may be empty.
        columns: names of a table's features, in the order of ``x``; empty for anything else.
        target: of a regression; None for anything else.
        text: of the two tasks on text; None for anything else.
        table: what the features of a table were made of; None for anything else.
        picture_bytes: split to bytes of its encoded pictures; empty for anything else.
    """

    task: str
    arrays: Mapping[str, Array]
    classes: tuple[str, ...]
    statistics: Statistics | None
    splits: Mapping[str, tuple[Shard, ...]]
    columns: tuple[str, ...] = ()
    target: Target | None = None
    text: TextEncoding | None = None
    table: TableEncoding | None = None
    picture_bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Numbers that a model gives for each row: one for each class, or the target's value; or for each token."""
        if self.task == "language_modeling" and self.text is not None:
            return self.text.vocabulary
        return len(self.classes) if self.classes else 1

    def rows(self, split: str) -> int:
        """Number of rows of a split."""
        return sum(shard.rows for shard in self.splits[split])

    def digest(self, split: str) -> str:
        """The sha256 of the hashes of a split's files: the same for the same rows in the same shards."""
        hashes = (file.sha256 for shard in self.splits[split] for _, file in sorted(shard.files.items()))
        return f"sha256 {hashlib.sha256(' '.join(hashes).encode()).hexdigest()}"

    def to_json(self) -> str:
        """Text of `index.json`: the same for the same content, byte for byte."""
        document = {
            "format": DATASET_FORMAT,
            "task": self.task,
            "arrays": {name: _array_to_json(array) for name, array in self.arrays.items()},
            "classes": self.classes,
            **({"columns": self.columns} if self.columns else {}),
            **({"table": self.table.to_json()} if self.table else {}),
            **({"target": asdict(self.target)} if self.target else {}),
            **({"text": asdict(self.text)} if self.text else {}),
            **({"picture_bytes": dict(self.picture_bytes)} if self.picture_bytes else {}),
            **({"statistics": asdict(self.statistics)} if self.statistics else {}),
            "splits": {
                name: {"rows": self.rows(name), "shards": [asdict(shard) for shard in shards]}
                for name, shards in self.splits.items()
            },
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def array_files(name: str, array: Array) -> tuple[str, ...]:
    """Names of the files that an array is kept in, for each shard."""
    return (name, offsets_name(name)) if array.ragged or array.is_encoded else (name,)


def offsets_name(name: str) -> str:
    """Name of the file that says where the rows of a ragged array begin and end."""
    return f"{name}_offsets"


def _array_to_json(array: Array) -> dict[str, Any]:
    further = {"ragged": array.ragged, "most_pixels": array.most_pixels}
    return {"shape": array.shape, "dtype": array.dtype, **{name: value for name, value in further.items() if value}}


def _array_from_json(array: Mapping[str, Any]) -> Array:
    shape, dtype = tuple(map(int, array["shape"])), np.dtype(array["dtype"]).name
    found = Array(shape, dtype, bool(array.get("ragged", False)), int(array.get("most_pixels", 0)))
    if found.is_encoded and (found.ragged or dtype != "uint8" or len(shape) != 3 or shape[-1] not in (1, 3)):
        raise ValueError(f"encoded pictures cannot have the shape {shape} and the type {dtype}")
    return found


def read_index(folder: Path) -> Index:
    """Read and check `index.json` of a dataset's folder.

    Raises:
        Refusal: if the folder holds no dataset, an unfinished one, one of another format, or a damaged index.
    """
    if not (path := folder / INDEX_FILE).is_file():
        unfinished = any((folder / split).is_dir() for split in SPLITS)
        why = "was not finished: it has shards but no" if unfinished else "is not a prepared dataset: it has no"
        raise Refusal(f"{folder} {why} {INDEX_FILE}. Run prepare_data and give its output `data`.")
    try:
        document = json.loads(read_bytes(path, JSON_BYTES))
        if document["format"] != DATASET_FORMAT:
            raise Refusal(f"{path} has the format {document['format']!r}; this library reads {DATASET_FORMAT!r}.")
        return _parse(document)
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        detail = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise Refusal(f"{path} is damaged: {detail}. Run prepare_data again.") from error


def _parse(document: Mapping[str, Any]) -> Index:
    arrays = {str(name): _array_from_json(array) for name, array in document["arrays"].items()}
    sizes = {name: int(document["picture_bytes"][name]) for name in SPLITS} if arrays["x"].is_encoded else {}
    task, target, text = document["task"], document.get("target"), document.get("text")
    if task not in _TASKS or (task == "regression") != bool(target) or (task in TEXT_TASKS) != bool(text):
        raise ValueError(
            f"its task is {task!r}, with {'a' if target else 'no'} target and {'a' if text else 'no'} text"
        )
    statistics = None if text else document["statistics"]
    return Index(
        task=str(task),
        arrays=arrays,
        classes=tuple(map(str, document["classes"])),
        statistics=statistics
        and Statistics(tuple(map(float, statistics["mean"])), tuple(map(float, statistics["std"]))),
        splits={name: _parse_split(name, document["splits"][name], arrays) for name in SPLITS},
        columns=tuple(map(str, document.get("columns", ()))),
        target=Target(str(target["name"]), float(target["mean"]), float(target["std"])) if target else None,
        text=text and _parse_text(text),
        table=TableEncoding.from_json(document["table"]) if document.get("table") else None,
        picture_bytes=sizes,
    )


def _parse_text(text: Mapping[str, Any]) -> TextEncoding:
    values: dict[str, Any] = {
        **{name: int(text[name]) for name in ("vocabulary", "sequence_length", "padding", "end_of_text")},
        **{name: {str(k): int(v) for k, v in text[name].items()} for name in ("size", "gzip_size", "tokens")},
    }
    documents = text["documents"]
    if documents not in DOCUMENT_USES:
        raise ValueError(f"its documents are {documents!r}")
    return TextEncoding(_inside(text["tokenizer"]), sha256=str(text["sha256"]), documents=str(documents), **values)


def _parse_split(name: str, split: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[Shard, ...]:
    shards = tuple(shard_from_json(shard, arrays) for shard in split["shards"])
    total = sum(shard.rows for shard in shards)
    if total != split["rows"]:
        raise ValueError(f"{name} claims {split['rows']} rows, its shards hold {total}")
    return shards


def shard_from_json(shard: Mapping[str, Any], arrays: Mapping[str, Array]) -> Shard:
    """A shard, from what ``asdict`` makes of it.

    Raises:
        ValueError: if it does not fit the arrays, or if a path leaves the dataset's folder.
    """
    expected = [file for name, array in arrays.items() for file in array_files(name, array)]
    if sorted(shard["files"]) != sorted(expected):
        raise ValueError(f"a shard has files for {sorted(shard['files'])}, not for the arrays {sorted(expected)}")
    rows = shard["rows"]
    if not isinstance(rows, int) or rows < 1:
        raise ValueError(f"a shard claims {rows!r} rows")
    files = {name: ShardFile(_inside(file["path"]), str(file["sha256"])) for name, file in shard["files"].items()}
    return Shard(rows, files)


def _inside(path: str) -> str:
    """Refuse a path that leaves the dataset's folder: an index may come from anywhere."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or "\0" in path:
        raise ValueError(f"the path {path!r} leaves the dataset's folder")
    return path

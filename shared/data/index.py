"""What `index.json` says, as frozen dataclasses, and the two ways: from JSON (checked) and to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from shared.distributed import Refusal

FORMAT = "allranks-dataset/1"
FILE_NAME = "index.json"
SPLITS = ("train", "validation", "test")
TASKS = ("classification", "regression")


@dataclass(frozen=True, slots=True)
class Array:
    """One row of an array: its shape without the row axis, and its NumPy dtype by name."""

    shape: tuple[int, ...]
    dtype: str


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
class File:
    """A file of the dataset: its path relative to the dataset's folder, with slashes, and its sha256 in hex."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Shard:
    """Consecutive rows of a split: one file for each array."""

    rows: int
    files: Mapping[str, File]


@dataclass(frozen=True, slots=True)
class Index:
    """The whole of `index.json`.

    Attributes:
        task: ``classification`` or ``regression``. Both have arrays ``x`` and ``y``: int64, a position in ``classes``;
            or float64, a value in its own units.
        arrays: name to shape and dtype.
        classes: names of the classes, in the order of the labels.
        statistics: of ``x``, over the train split.
        splits: train, validation and test to their shards, in row order; a split may be empty.
        columns: names of a table's features, in the order of ``x``; empty for anything else.
        target: of a regression; None for a classification.
    """

    task: str
    arrays: Mapping[str, Array]
    classes: tuple[str, ...]
    statistics: Statistics
    splits: Mapping[str, tuple[Shard, ...]]
    columns: tuple[str, ...] = ()
    target: Target | None = None

    @property
    def outputs(self) -> int:
        """Numbers that a model gives for each row: one for each class, or the target's value."""
        return len(self.classes) if self.task == "classification" else 1

    def rows(self, split: str) -> int:
        """Number of rows of a split."""
        return sum(shard.rows for shard in self.splits[split])

    def to_json(self) -> str:
        """Text of `index.json`: the same for the same content, byte for byte."""
        document = {
            "format": FORMAT,
            "task": self.task,
            "arrays": {name: asdict(array) for name, array in self.arrays.items()},
            "classes": self.classes,
            **({"columns": self.columns} if self.columns else {}),
            **({"target": asdict(self.target)} if self.target else {}),
            "statistics": asdict(self.statistics),
            "splits": {
                name: {"rows": self.rows(name), "shards": [shard_to_json(shard) for shard in shards]}
                for name, shards in self.splits.items()
            },
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_index(folder: Path) -> Index:
    """Read and check `index.json` of a dataset's folder.

    Raises:
        Refusal: if the folder holds no dataset, an unfinished one, one of another format, or a damaged index.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        unfinished = any((folder / split).is_dir() for split in SPLITS)
        why = "was not finished: it has shards but no" if unfinished else "is not a prepared dataset: it has no"
        raise Refusal(f"{folder} {why} {FILE_NAME}. Run prepare_data and give its output `data`.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise Refusal(f"{path} has the format {document['format']!r}; this library reads {FORMAT!r}.")
        return _parse(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise Refusal(f"{path} is damaged: {detail}. Run prepare_data again.") from error


def _parse(document: Mapping[str, Any]) -> Index:
    arrays = {
        str(name): Array(tuple(map(int, array["shape"])), np.dtype(array["dtype"]).name)
        for name, array in document["arrays"].items()
    }
    splits = {name: _parse_split(name, document["splits"][name], arrays) for name in SPLITS}
    statistics, target = document["statistics"], document.get("target")
    if document["task"] not in TASKS or (document["task"] == "regression") != (target is not None):
        raise ValueError(f"its task is {document['task']!r}, with {'a' if target else 'no'} target")
    return Index(
        task=str(document["task"]),
        arrays=arrays,
        classes=tuple(map(str, document["classes"])),
        statistics=Statistics(tuple(map(float, statistics["mean"])), tuple(map(float, statistics["std"]))),
        splits=splits,
        columns=tuple(map(str, document.get("columns", ()))),
        target=Target(str(target["name"]), float(target["mean"]), float(target["std"])) if target else None,
    )


def _parse_split(name: str, split: Mapping[str, Any], arrays: Mapping[str, Array]) -> tuple[Shard, ...]:
    shards = tuple(shard_from_json(shard, arrays) for shard in split["shards"])
    total = sum(shard.rows for shard in shards)
    if total != split["rows"]:
        raise ValueError(f"{name} claims {split['rows']} rows, its shards hold {total}")
    return shards


def shard_from_json(shard: Mapping[str, Any], arrays: Mapping[str, Array]) -> Shard:
    """A shard's record; the way back from ``shard_to_json``.

    Raises:
        ValueError: if it does not fit the arrays, or if a path leaves the dataset's folder.
    """
    if shard["files"].keys() != arrays.keys():
        raise ValueError(f"a shard has files for {sorted(shard['files'])}, not for the arrays {sorted(arrays)}")
    rows = shard["rows"]
    if not isinstance(rows, int) or rows < 1:
        raise ValueError(f"a shard claims {rows!r} rows")
    files = {name: File(_inside(file["path"]), str(file["sha256"])) for name, file in shard["files"].items()}
    return Shard(rows, files)


def _inside(path: str) -> str:
    """Refuse a path that leaves the dataset's folder: an index may come from anywhere."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path:
        raise ValueError(f"the path {path!r} leaves the dataset's folder")
    return path


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """A shard's record, as `index.json` has it."""
    return {"rows": shard.rows, "files": {name: asdict(file) for name, file in shard.files.items()}}

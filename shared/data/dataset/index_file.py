"""Reading `index.json`: what it says is checked, since it may come from anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from shared.data.dataset.index import (
    DATASET_FORMAT,
    INDEX_FILE,
    SPLITS,
    TEXT_TASKS,
    Array,
    Index,
    Shard,
    ShardFile,
    Statistics,
    Target,
    TextEncoding,
    array_files,
)
from shared.distributed import Refusal

_TASKS = ("classification", "regression", *TEXT_TASKS)


def read_index(folder: Path) -> Index:
    """Read and check `index.json` of a dataset's folder.

    Raises:
        Refusal: if the folder holds no dataset, an unfinished one, one of another format, or a damaged index.
    """
    path = folder / INDEX_FILE
    if not path.is_file():
        unfinished = any((folder / split).is_dir() for split in SPLITS)
        why = "was not finished: it has shards but no" if unfinished else "is not a prepared dataset: it has no"
        raise Refusal(f"{folder} {why} {INDEX_FILE}. Run prepare_data and give its output `data`.")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != DATASET_FORMAT:
            raise Refusal(f"{path} has the format {document['format']!r}; this library reads {DATASET_FORMAT!r}.")
        return _parse(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise Refusal(f"{path} is damaged: {detail}. Run prepare_data again.") from error


def _parse(document: Mapping[str, Any]) -> Index:
    arrays = {
        str(name): Array(
            tuple(map(int, array["shape"])), np.dtype(array["dtype"]).name, bool(array.get("ragged", False))
        )
        for name, array in document["arrays"].items()
    }
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
    )


def _parse_text(text: Mapping[str, Any]) -> TextEncoding:
    values: dict[str, Any] = {
        **{name: int(text[name]) for name in ("vocabulary", "sequence_length", "padding", "end_of_text")},
        **{name: {str(k): int(v) for k, v in text[name].items()} for name in ("size", "gzip_size", "tokens")},
    }
    return TextEncoding(tokenizer=_inside(text["tokenizer"]), sha256=str(text["sha256"]), **values)


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
    if parts.is_absolute() or ".." in parts.parts or "\\" in path:
        raise ValueError(f"the path {path!r} leaves the dataset's folder")
    return path

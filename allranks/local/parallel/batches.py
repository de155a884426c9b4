"""How the input of a parallel step is divided into mini batches: by number of files, by bytes of text, or by key.

A file of a table that is not larger than ``mini_batch_size`` is a mini batch of its own, a larger one is cut at ends of
lines; files are never put together. Source: Azure ML's description of ``mini_batch_size`` for tabular data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from allranks.errors import CannotRunHereError
from allranks.local.parallel.tables import TableSpec, list_files, read_table_spec

MiniBatch: TypeAlias = dict[str, Any]
"""What a worker is told: ``files`` (paths) or ``pieces`` of a table, and the ``key`` that they have in common."""

_FILES = 1  # of a mini batch, where the YAML is silent, by Azure's reference
_BYTES = 2**20
_WIDE = ("utf-16", "utf-32")  # an end of line is more than one byte of these


def divide_input(path: Path, type_: str, size: int | None, keys: Sequence[str]) -> list[MiniBatch]:
    """All mini batches of an input, in an order that depends on the data alone.

    Raises:
        CannotRunHereError: there is nothing to divide, or not in the way that is asked for.
    """
    spec = read_table_spec(path) if type_ == "mltable" else list_files(path)
    if not spec.files:
        raise CannotRunHereError(f"there is no file in {path}.")
    if keys:
        return _by_key(spec, keys)
    if spec.read is None:
        count = size or _FILES
        files = [str(file) for file in spec.files]
        return [{"files": files[start : start + count]} for start in range(0, len(files), count)]
    return [{"pieces": [piece]} for file in spec.files for piece in _pieces(spec, file, size or _BYTES)]


def _by_key(spec: TableSpec, keys: Sequence[str]) -> list[MiniBatch]:
    """One mini batch for all files that have the same values in their paths."""
    missing = [key for key in keys if key not in spec.path_columns]
    if missing:
        message = f"cannot run here: partition key {missing[0]!r} is no column of the paths"
        known = f" ({', '.join(spec.path_columns)})" if spec.path_columns else ""
        hint = "An MLTable names these with extract_columns_from_partition_format."
        raise CannotRunHereError(f"{message}{known}.", hint)
    found: dict[tuple[str, ...], list[Path]] = {}
    for file in spec.files:
        values = spec.path_values(file)
        found.setdefault(tuple(values[key] for key in keys), []).append(file)
    batches = []
    for key, files in sorted(found.items()):
        batch: MiniBatch = {"key": dict(zip(keys, key, strict=True))}
        if spec.read is None:
            batch["files"] = [str(file) for file in files]
        else:
            batch["pieces"] = [piece for file in files for piece in _pieces(spec, file, None)]
        batches.append(batch)
    return batches


def _pieces(spec: TableSpec, file: Path, size: int | None) -> Iterator[dict[str, Any]]:
    """A file of a table, cut where it is larger than ``size`` bytes."""
    assert spec.read is not None  # noqa: S101 it is a table
    read = dict(spec.read)
    first = read["header"] == "from_first_file"
    headed = read["header"] != "no_header" and (not first or file == spec.files[0])
    common = {
        "path": str(file),
        "read": read,
        "columns": [[change, list(names)] for change, names in spec.columns],
        "values": spec.path_values(file),
        "header_of": str(spec.files[0]) if first else str(file) if headed else None,
    }
    whole = size is None or read["multi_line"] or read["encoding"].startswith(_WIDE)
    for start, end in [(0, None)] if whole else _line_ranges(file, size or _BYTES, headed=headed):
        yield {**common, "start": start, "end": end, "has_header": headed and start == 0}


def _line_ranges(file: Path, size: int, *, headed: bool) -> Iterator[tuple[int, int]]:
    """Ranges of bytes of at most ``size``, cut at ends of lines; a line that is longer has its own."""
    start = at = body = 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines):
            if headed and number == 0:
                at = body = len(line)
                continue
            if at > max(start, body) and at + len(line) - max(start, body) > size:
                yield start, at
                start = at
            at += len(line)
    if at > start:
        yield start, at

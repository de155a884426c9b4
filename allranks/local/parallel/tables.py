"""What an MLTable file says: which files there are, how they are read, and which columns their paths hold.

Understood are lists of files, folders and patterns on this machine, delimited text, columns taken from paths, and
columns that are kept or dropped; all else is refused by name. Source: the schema of MLTable artifacts in Azure ML's
reference "CLI (v2) mltable YAML schema".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from allranks.errors import CannotRunHereError
from allranks.local.fingerprint import walk_linked
from allranks.spec.section import is_address

HEADERS = ("no_header", "from_first_file", "all_files_different_headers", "all_files_same_headers")
ENCODINGS = {
    "utf8": "utf-8",
    "utf8bom": "utf-8-sig",
    "ascii": "ascii",
    "iso88591": "latin-1",
    "latin1": "latin-1",
    "windows1252": "cp1252",
    "utf16": "utf-16",
    "utf32": "utf-32",
}
_READ_KEYS = frozenset(
    {"delimiter", "encoding", "header", "empty_as_string", "include_path_column", "infer_column_types"}
    | {"support_multi_line", "path_column"}
)
_FORMAT_PART = re.compile(r"\{([^{}:]+)(:[^{}]*)?\}")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """An MLTable, or a folder or file that stands for a list of files.

    Attributes:
        files: sorted by their path.
        read: how delimited text is read; None for a list of files.
        columns: ``keep`` or ``drop`` with the names of columns, in the order in which they are applied.
        path_pattern: what the end of a path matches, with a group for each of ``path_columns``.
    """

    files: tuple[Path, ...]
    read: Mapping[str, Any] | None = None
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    path_pattern: str = ""
    path_columns: tuple[str, ...] = field(default=())

    def path_values(self, file: Path) -> dict[str, str]:
        """The columns that a file's path holds.

        Raises:
            CannotRunHereError: the path is not of the partition format.
        """
        if not self.path_columns:
            return {}
        match = re.search(self.path_pattern, file.as_posix())
        if match is None:
            raise CannotRunHereError(f"{file} is not of the partition format of its MLTable.")
        return dict(zip(self.path_columns, match.groups(), strict=True))


def list_files(path: Path) -> TableSpec:
    """A file, or all files below a folder and the folders that links in it lead to."""
    below = () if path.is_file() else (Path(folder, name) for folder, _, names in walk_linked(path) for name in names)
    files = [path] if path.is_file() else [file for file in below if file.is_file()]
    return TableSpec(tuple(sorted(files)))


def read_table_spec(folder: Path) -> TableSpec:
    """Read the MLTable file of a folder.

    Raises:
        CannotRunHereError: there is none, or it asks for what is not understood here.
    """
    file = folder / "MLTable"
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotRunHereError(f"{folder} is no mltable: {file} cannot be read.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CannotRunHereError(f"{file} is not YAML: {error}.") from error
    paths = document.get("paths") if isinstance(document, dict) else None
    if not isinstance(paths, list) or not paths:
        raise CannotRunHereError(f"{file} lists no paths.", "Write paths: [{pattern: ./*.csv}].")
    files = tuple(dict.fromkeys(one for entry in paths for one in _files(file, entry)))
    if not files:
        raise CannotRunHereError(f"the paths of {file} name no file.")
    return _transformed(file, TableSpec(files), document.get("transformations") or [])


def _files(file: Path, entry: object) -> list[Path]:
    """The files that one entry of ``paths`` names."""
    kind, text = next(iter(entry.items()), ("", "")) if isinstance(entry, dict) else ("", "")
    if kind not in ("file", "folder", "pattern") or not isinstance(text, str):
        raise CannotRunHereError(f"{file}: {entry!r} is no path.", "Write file:, folder: or pattern:.")
    if is_address(text):
        raise CannotRunHereError(f"{file}: {text!r} lies in the cloud.", "Name files on this machine.")
    base = file.parent
    if kind == "pattern":
        inner = Path(text)
        anchor = Path(inner.anchor) if inner.is_absolute() else base
        pattern = str(inner.relative_to(inner.anchor))
        return sorted(one for one in anchor.glob(pattern) if one.is_file() and one.name != "MLTable")
    path = base / text
    if not path.exists():
        raise CannotRunHereError(f"{file}: there is no {kind} {text!r}.")
    return [one for one in list_files(path).files if one.name != "MLTable"]


def _transformed(file: Path, spec: TableSpec, transformations: object) -> TableSpec:
    """The table after its transformations."""
    for entry in transformations if isinstance(transformations, list) else [transformations]:
        kind, said = next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else (str(entry), None)
        if kind == "read_delimited":
            spec = TableSpec(spec.files, _read_options(file, said or {}), spec.columns)
        elif kind in ("keep_columns", "drop_columns"):
            names = tuple(map(str, said)) if isinstance(said, list) else (str(said),)
            change = (kind.partition("_")[0], names)
            spec = TableSpec(spec.files, spec.read, (*spec.columns, change), spec.path_pattern, spec.path_columns)
        elif kind == "extract_columns_from_partition_format":
            text = said.get("partition_format") if isinstance(said, dict) else said
            spec = TableSpec(spec.files, spec.read, spec.columns, *_path_pattern(file, str(text)))
        else:
            known = "read_delimited, keep_columns, drop_columns and extract_columns_from_partition_format"
            raise CannotRunHereError(f"cannot run here: {file} asks for {kind!r}; understood are {known}.")
    return spec


def _read_options(file: Path, said: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(said.keys() - _READ_KEYS):
        raise CannotRunHereError(f"cannot run here: {file}: read_delimited with {', '.join(unknown)}.")
    header = str(said.get("header") or "all_files_same_headers").lower()
    encoding = str(said.get("encoding") or "utf8").lower().replace("-", "").replace("_", "")
    if header not in HEADERS or encoding not in ENCODINGS:
        choices = ", ".join(HEADERS if header not in HEADERS else ENCODINGS)
        raise CannotRunHereError(f"{file}: {header if header not in HEADERS else encoding!r} is none of {choices}.")
    return {
        "delimiter": str(said.get("delimiter") or ","),
        "encoding": ENCODINGS[encoding],
        "header": header,
        "empty_as_string": said.get("empty_as_string") is True,
        "path_column": said.get("include_path_column") is True,
        "multi_line": said.get("support_multi_line") is True,
    }


def _path_pattern(file: Path, text: str) -> tuple[str, tuple[str, ...]]:
    """A partition format such as ``{store}/{brand}/{name}.csv`` as a pattern for the end of a path."""
    start = text.find("{")
    names: list[str] = []
    pattern, end = "(?:^|/)", max(start, 0)
    for match in _FORMAT_PART.finditer(text):
        if match[2]:
            raise CannotRunHereError(f"cannot run here: {file}: {match[0]!r} takes a date from a path.")
        pattern += re.escape(text[end : match.start()]) + "([^/]+?)"
        names.append(match[1])
        end = match.end()
    if not names:
        raise CannotRunHereError(f"{file}: the partition format {text!r} names no column.")
    return f"{pattern}{re.escape(text[end:])}$", tuple(names)

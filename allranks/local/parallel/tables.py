"""Which files the input of a parallel step has: those of a folder, or those that an MLTable file lists.

The schema of MLTable files is that of Azure ML's reference "CLI (v2) mltable YAML schema".
"""

from __future__ import annotations

from pathlib import Path

import yaml

from allranks.errors import CannotRunHereError
from allranks.local.fingerprint import walk_linked
from allranks.spec.section import is_address


def list_files(path: Path) -> tuple[Path, ...]:
    """A file, or all files below a folder and the folders that links in it lead to, sorted by their path."""
    below = () if path.is_file() else (Path(folder, name) for folder, _, names in walk_linked(path) for name in names)
    files = [path] if path.is_file() else [file for file in below if file.is_file()]
    return tuple(sorted(files))


def list_table_files(folder: Path) -> tuple[Path, ...]:
    """The files that the MLTable file of a folder lists, in its order.

    Raises:
        CannotRunHereError: there is no MLTable file, it names no file on this machine, or it has transformations.
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
    if transformations := document.get("transformations"):
        first = transformations[0] if isinstance(transformations, list) else transformations
        name = next(iter(first), "") if isinstance(first, dict) else first
        message = f"{file}: MLTable transformation {name!r} is not run locally."
        raise CannotRunHereError(f"{message} Give the files as a uri_folder, and read them in the entry script.")
    files = tuple(dict.fromkeys(one for entry in paths for one in _files(file, entry)))
    if not files:
        raise CannotRunHereError(f"the paths of {file} name no file.")
    return files


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
    return [one for one in list_files(path) if one.name != "MLTable"]

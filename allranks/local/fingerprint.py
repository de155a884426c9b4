"""What makes two executions of a step the same: files by name, size and time; interpreters by what is installed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from allranks.local.folders import DEFAULT_HOME


def json_digest(document: Any) -> str:
    """The sha256 of a JSON document, the same for equal documents whatever their order of keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def tree_fingerprint(path: Path) -> list[list[str | int]]:
    """Every file below a path as [relative name, bytes, nanoseconds of its last change], sorted.

    Reading the contents of a data set at each start would cost more than many steps; size and time are what rsync and
    make trust. A link to a folder is followed, by name; a broken link shows as size -1. What Python has compiled does
    not count: a step may import from an input, and on a read-only mount nothing comes of that. Nor do the runs of a
    folder that is an input as a whole, which change while they run.
    """
    if not path.is_dir():
        return [_file("", path)]
    found: list[list[str | int]] = []
    for folder, folders, names in walk_linked(path):
        folders[:] = [name for name in folders if name not in ("__pycache__", DEFAULT_HOME)]
        base = os.path.relpath(folder, path)
        found += [_file(name if base == "." else f"{base}/{name}", Path(folder, name)) for name in names]
    return sorted(found, key=lambda entry: str(entry[0]))


def walk_linked(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As ``os.walk``, with links to folders followed, but for those to a folder that contains them: these never end."""
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not _leads_back(path, folder, name)]
        yield folder, folders, names


def _leads_back(path: Path, folder: str, name: str) -> bool:
    link = f"{folder}/{name}"
    if not os.path.islink(link):  # noqa: PTH114 asked for every folder of a data set, where Path is slow
        return False
    target, here = os.path.realpath(link), Path(folder)
    inside = here.relative_to(path).parts
    return any(os.path.realpath(path.joinpath(*inside[:depth])) == target for depth in range(len(inside) + 1))


def _file(name: str, path: Path) -> list[str | int]:
    try:
        stat = path.stat()
    except OSError:
        return [name, -1, -1]
    return [name, stat.st_size, stat.st_mtime_ns]


@cache
def interpreter_digest(python: Path) -> str:
    """What a step's Python is: its path, version and the distributions installed beside it.

    An upgraded framework may give other numbers, so a step is not reused after one.
    """
    found = {path.name for folder in site_packages(python) for path in folder.glob("*-info")}
    # Our own record changes with every editable install and says nothing about the step.
    others = (name for name in found if name.endswith((".dist-info", ".egg-info")) and not name.startswith("allranks-"))
    return json_digest([str(python), sys.version if python == Path(sys.executable) else "", sorted(others)])


@cache
def site_packages(python: Path) -> tuple[Path, ...]:
    """The folders in which an interpreter finds what is installed, as far as can be seen without running it."""
    if python == Path(sys.executable):
        return tuple(Path(entry) for entry in sys.path if entry.endswith("-packages"))
    return tuple(sorted(python.parent.parent.glob("lib/python3*/site-packages")))


def forget_interpreters() -> None:
    """Look anew at what is installed: a notebook that goes on may have installed something since its last run."""
    interpreter_digest.cache_clear()
    site_packages.cache_clear()

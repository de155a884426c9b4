"""Tracebacks that are quoted for people: they name the user's file, and not the copy that the node ran."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.snapshot import SnapshotFile


def point_at_sources(lines: Iterable[str], folder: StepFolder, files: Sequence[SnapshotFile]) -> tuple[str, ...]:
    """The lines with ``File ".../nodes/0/work/train.py"`` naming the source of that file.

    A source that has changed since the snapshot was taken is not named: its lines are others now.
    """
    sources = {file.path: file.source for file in files if file.members is None}
    return tuple(_pointed(line, folder, sources.get) for line in lines)


def point_at_code(text: str, folder: StepFolder, code: Sequence[str]) -> str:
    """The text as ``point_at_sources`` has it, long after: the sources lie in ``code`` or are what that names.

    Args:
        text: of a log.
        folder: of the step that wrote it, in the run that executed it.
        code: the component's code and what it includes, as paths.
    """

    def find(path: str) -> Path | None:
        first, *others = [Path(one) for one in code] or [Path()]
        places = [first / path, *(one.parent / path for one in (first, *others))]
        return next((place for place in places if place.is_file()), None)

    return _pointed(text, folder, find) if code else text


def _pointed(text: str, folder: StepFolder, find: Callable[[str], Path | None]) -> str:
    pattern = re.compile(rf'(File "){re.escape(str(folder.path))}/nodes/\d+/work/([^"]+)(")')
    unchanged: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        path = match[2]
        if path not in unchanged:
            source = find(path)
            same = source is not None and _equal(source, folder.snapshot / path)
            unchanged[path] = str(source) if same else ""
        return f"{match[1]}{unchanged[path]}{match[3]}" if unchanged[path] else match[0]

    return pattern.sub(place, text)


def _equal(source: Path, copy: Path) -> bool:
    try:
        return filecmp.cmp(source, copy, shallow=False)
    except OSError:
        return False

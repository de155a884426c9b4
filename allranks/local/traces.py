"""Tracebacks that are quoted for people: they name the user's file, and not the copy that the node ran."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from allranks.local.folders import StepFolder
from allranks.local.snapshot import SnapshotFile


def point_at_sources(lines: Iterable[str], folder: StepFolder, files: Sequence[SnapshotFile]) -> tuple[str, ...]:
    """The lines with ``File ".../nodes/0/work/train.py"`` naming the source of that file.

    A source that has changed since the snapshot was taken is not named: its lines are others now.
    """
    pattern = re.compile(rf'(File "){re.escape(str(folder.path))}/nodes/\d+/work/([^"]+)(")')
    sources = {file.path: file.source for file in files if file.members is None}
    unchanged: dict[str, str] = {}

    def place(match: re.Match[str]) -> str:
        path = match[2]
        if path not in unchanged:
            source = sources.get(path)
            same = source is not None and _equal(source, folder.snapshot / path)
            unchanged[path] = str(source) if same else ""
        return f"{match[1]}{unchanged[path]}{match[3]}" if unchanged[path] else match[0]

    return tuple(pattern.sub(place, line) for line in lines)


def _equal(source: Path, copy: Path) -> bool:
    try:
        return filecmp.cmp(source, copy, shallow=False)
    except OSError:
        return False

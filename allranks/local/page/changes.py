"""What differs between the files that steps got: by name, size and content, with the changed lines of texts."""

from __future__ import annotations

import difflib
import filecmp
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from allranks.local.folders import RunFolder
from allranks.local.record_shapes import read_json_file
from allranks.redaction import redact

_LARGEST = 1 << 18  # bytes of a file whose lines are compared
_MOST_LINES = 200  # of one file's difference
_MOST_LOOKED_AT = 20  # runs, when the one before is looked for


def snapshot_sizes(snapshot: Path) -> dict[str, int]:
    """The files of a snapshot with their bytes, by path."""
    files = sorted(path for path in snapshot.rglob("*") if path.is_file())
    return {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in files}


@lru_cache(256)
def changed_files(before: Path, after: Path) -> tuple[Mapping[str, Any], ...]:
    """The files that differ between two snapshots, which never change: ``path``, ``change`` and a text's ``lines``."""
    old, new = snapshot_sizes(before), snapshot_sizes(after)
    found: list[Mapping[str, Any]] = []
    for path in sorted(old.keys() | new.keys()):
        change = "added" if path not in old else "removed" if path not in new else "changed"
        if change == "changed" and filecmp.cmp(before / path, after / path, shallow=False):
            continue
        found.append({"path": path, "change": change, "lines": _difference(before / path, after / path)})
    return tuple(found)


def _difference(before: Path, after: Path) -> list[str]:
    """The lines that differ, as ``diff -u`` shows them, secrets blotted out; none for what is no text."""
    texts = [_text(before), _text(after)]
    if None in texts:
        return []
    old, new = (redact(text or "").splitlines() for text in texts)
    lines = list(islice(difflib.unified_diff(old, new, lineterm="", n=2), _MOST_LINES + 3))[2:]
    return [*lines[:_MOST_LINES], "…"] if len(lines) > _MOST_LINES else lines


def _text(path: Path) -> str | None:
    """What a file holds, nothing if it is not there; None if it is large or no text."""
    if not path.exists():
        return ""
    if path.stat().st_size > _LARGEST:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


@lru_cache(256)
def run_before(run: RunFolder) -> RunFolder | None:
    """The newest earlier run of the same target, if it is among the last few; None if there is none."""
    state = read_json_file(run.state) or {}
    earlier = [other for other in run.home.all_runs() if other.id < run.id]
    for other in reversed(earlier[-_MOST_LOOKED_AT:]):
        past = read_json_file(other.state) or {}
        if all(past.get(key) == state.get(key) for key in ("target", "name")):
            return other
    return None

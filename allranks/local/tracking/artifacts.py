"""Lists of the files that were logged; the files themselves are written and read by the clients."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.local.tracking.runs import artifact_uri, find_run
from allranks.local.tracking.store import INVALID, TrackingError, TrackingStore, files_below, text_of


def list_artifacts(store: TrackingStore, request: Mapping[str, Any]) -> dict[str, Any]:
    """List the files of a run, or those of one folder among them."""
    uri = artifact_uri(store, find_run(store, request))
    return {"root_uri": uri, "files": _entries(uri, text_of(request, "path", ""))}


def _entries(uri: str, path: str) -> list[dict[str, Any]]:
    root = files_below(uri)
    if root is None:
        raise TrackingError(INVALID, f"The files lie in {uri}, which this server cannot list.")
    folder = Path(os.path.normpath(root / path))
    if not folder.is_relative_to(root):
        raise TrackingError(INVALID, f"Invalid path: {path[:200]}")
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        return []
    return [_entry(root, item) for item in sorted(folder.iterdir())]


def _entry(root: Path, item: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"path": item.relative_to(root).as_posix(), "is_dir": item.is_dir()}
    return entry if item.is_dir() else {**entry, "file_size": item.lstat().st_size}

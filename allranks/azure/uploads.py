"""What of a component's code the SDK uploads: what the local engine would put into a snapshot, and no runs folder.

The SDK honours the one ignore file at the root of the code, which is the user's own. ``code: .`` beside ``.allranks/``
would send every model and log of every run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.local.folders import is_runs_folder


@contextlib.contextmanager
def without_runs() -> Iterator[None]:
    """Within the block the SDK leaves runs folders out of the code that it lists, hashes and uploads."""
    from azure.ai.ml.entities._component.code import ComponentIgnoreFile

    original = ComponentIgnoreFile.is_file_excluded

    def is_file_excluded(self: Any, file_path: str | os.PathLike[str]) -> bool:
        return _in_runs_folder(Path(file_path), Path(self.base_path)) or original(self, file_path)

    ComponentIgnoreFile.is_file_excluded = is_file_excluded
    try:
        yield
    finally:
        ComponentIgnoreFile.is_file_excluded = original


def _in_runs_folder(path: Path, base: Path) -> bool:
    """Whether a path below the base is a runs folder or lies in one; whatever is above the base does not matter."""
    path, base = path.absolute(), base.absolute()
    above = [folder for folder in path.parents if folder != base and folder.is_relative_to(base)]
    return any(is_runs_folder(folder) for folder in (path, *above))

"""What of a component's code the SDK uploads: what the local engine would put into a snapshot, and no runs folder.

The SDK honours the one ignore file at the root of the code, which is the user's own. ``code: .`` beside ``.allranks/``
would send every model and log of every run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from allranks.azure.sdk import files_left_out
from allranks.local.folders import is_runs_folder


def runs_left_out() -> AbstractContextManager[None]:
    """Within the block the SDK leaves runs folders out of the code that it lists, hashes and uploads."""
    return files_left_out(_in_runs_folder)


def _in_runs_folder(path: Path, base: Path) -> bool:
    """Whether a path below the base is a runs folder or lies in one; whatever is above the base does not matter."""
    path, base = path.absolute(), base.absolute()
    above = [folder for folder in path.parents if folder != base and folder.is_relative_to(base)]
    return any(is_runs_folder(folder) for folder in (path, *above))

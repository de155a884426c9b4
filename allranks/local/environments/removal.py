"""Removing environments that were built."""

from __future__ import annotations

import shutil
from pathlib import Path

from allranks.local.environments.building import sole_builder
from allranks.local.environments.library import STAMP_FILE
from allranks.local.environments.step_environment import BUILT_FILE


def remove_environment(home: Path, name: str) -> None:
    """Remove one with its log; a name of ours, or the name of a folder in ``.allranks/environments``.

    Raises:
        CannotRunHereError: somebody is building it.
    """
    folder = home.absolute() / "environments" / name
    with sole_builder(folder):
        for stamp in (STAMP_FILE, BUILT_FILE):  # first: what is half removed does not count as built
            (folder / stamp).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        for suffix in (".log", ".yml"):
            folder.with_name(f"{name}{suffix}").unlink(missing_ok=True)

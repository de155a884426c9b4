"""Saving into storage that is full, or ill for a while: how room is made, and what is said of a save that failed.

A save that finds no room is tried once more, when the oldest checkpoint has been removed. Of those that are there, the
newest that is whole always stays, and so do those that `keep_every` promises: what is removed does not come back, and
somebody has asked for them. A save that fails again is counted, and the training goes on.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.checkpoint.files import (
    MANIFEST_FILE,
    checkpoints_newest_first,
    find_damage,
    remove_checkpoint,
    step_of,
)
from shared.storage import is_full, may_pass


@dataclass(frozen=True, slots=True)
class FailedSave:
    """Why a step is no checkpoint, as all ranks know it.

    Attributes:
        step: optimizer steps done.
        said: what the storage has said.
        full: whether it has no room, or is ill for another reason.
        needed: bytes of the checkpoint, of all ranks.
        free: bytes, by what the storage says; None if it says nothing.
        kept: step of the newest checkpoint of the folder that is whole; None if there is none.
    """

    step: int
    said: str
    full: bool
    needed: int
    free: int | None
    kept: int | None

    def explain(self, folder: Path) -> str:
        """Say where, why and how much is lacking."""
        free = "" if self.free is None else f", {in_bytes(self.free)} free"
        what = "has no room" if self.full else "did not take it"
        return f"{folder} {what} ({self.said}; needs {in_bytes(self.needed)}{free})"

    def name_kept(self) -> str:
        """Say which checkpoint there is."""
        if self.kept is None:
            return "there is no checkpoint yet"
        return f"the last whole checkpoint is of step {self.kept}"


def describe_failure(folder: Path, step: int, said: str, needed: int, *, full: bool) -> dict[str, Any]:
    """Look at a folder when what a failed save has left is removed: the arguments of `FailedSave`, which JSON holds."""
    whole = (path for path in checkpoints_newest_first(folder) if step_of(path) <= step and find_damage(path) is None)
    kept = next((step_of(path) for path in whole), None)
    return {"step": step, "said": said, "full": full, "needed": needed, "free": free_bytes(folder), "kept": kept}


class RoomMaker:
    """Removes a checkpoint at a time from a folder, for one that is to be written; one process has it."""

    def __init__(self, folder: Path, every: int) -> None:
        self._folder, self._every = folder, every
        self._read: Path | None = None  # all bytes of it were right

    def make_room(self, step: int) -> str:
        """Remove what is left of broken saves, and one checkpoint; a name of these, or an empty text if none may go.

        `step` is to be saved.
        """
        known = checkpoints_newest_first(self._folder)
        broken = [path for path in known if not (path / MANIFEST_FILE).is_file() and step_of(path) != step]
        for path in broken:
            remove_checkpoint(path)
        goes = self._find_removable([path for path in known if (path / MANIFEST_FILE).is_file()], step)
        if goes is None:
            return broken[0].name if broken else ""
        remove_checkpoint(goes)
        return goes.name

    def _find_removable(self, known: list[Path], step: int) -> Path | None:
        """Choose one beside the newest that is whole: what is newer but of no use, else the oldest."""
        stays = next((path for path in known if step_of(path) <= step and self._is_whole(path)), None)
        if stays is None:
            return None
        place = known.index(stays)
        order = (*known[:place], *reversed(known[place + 1 :]))
        return next((path for path in order if not (self._every and step_of(path) % self._every == 0)), None)

    def _is_whole(self, path: Path) -> bool:
        """Read all of a checkpoint, once: there will be none to fall back to."""
        if path != self._read and find_damage(path, whole=True) is None:
            self._read = path
        return path == self._read


def free_bytes(folder: Path) -> int | None:
    """Bytes that may still be written where a folder is; None where that is not known."""
    place = next((path for path in (folder, *folder.parents) if path.is_dir()), folder)
    try:
        return shutil.disk_usage(place).free if os.statvfs(place).f_blocks else None
    except OSError:
        return None


def in_bytes(number: float) -> str:
    """Bytes in words: GB, or MB where that is less than 0.1 GB."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:,.1f} MB"


def lack_of(error: OSError) -> list[Any]:
    """What storage has said, and whether it is full.

    Raises:
        OSError: this one, if it does not pass by itself.
    """
    if not may_pass(error):
        raise error
    return [error.strerror or str(error), is_full(error)]

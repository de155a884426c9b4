"""How a checkpoint becomes one: written under another name, renamed when it is whole; older ones are removed then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shared.checkpoint.choose import checkpoints_newest_first
from shared.checkpoint.manifest import (
    LATEST_FILE,
    MANIFEST_FILE,
    STATE,
    WHOLE_FORMAT,
    Seal,
    seal_file,
    step_of_name,
    sync_to_disk,
)

_UNFINISHED: Final = ".writing-"


def begin_checkpoint(folder: str | Path, step: int) -> Path:
    """Make the folder that the files of a step's checkpoint are written to, until `publish_checkpoint` makes it one."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = folder / f"{_UNFINISHED}{step:08d}"
    part.mkdir()
    return part


def publish_checkpoint(
    part: Path, step: int, state: object, files: Mapping[str, Seal], keep: int = 2, form: str = WHOLE_FORMAT
) -> Path:
    """Make a checkpoint of the folder that `begin_checkpoint` made, and remove those that are too old.

    Args:
        part: the folder.
        step: optimizer steps done.
        state: whatever JSON holds.
        files: name to what `seal_file` gave, of each file in it.
        keep: see `save`.
        form: name of its format.

    Returns:
        The checkpoint's folder.
    """
    folder = part.parent
    final = folder / f"step-{step:08d}"
    (part / STATE).write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
    files = {**files, STATE: seal_file(part / STATE)}
    (part / MANIFEST_FILE).write_text(json.dumps({"format": form, "step": step, "files": files}), encoding="utf-8")
    sync_to_disk(part / MANIFEST_FILE)
    sync_to_disk(part)
    if final.exists():  # only a damaged one: a whole one would have been continued from
        shutil.rmtree(final)
    part.rename(final)
    sync_to_disk(folder)
    _point_to(folder, final.name)
    _remove_old(folder, step, keep)
    return final


def _point_to(folder: Path, name: str) -> None:
    part = folder / f"{LATEST_FILE}.part"
    part.write_text(json.dumps({"checkpoint": name}), encoding="utf-8")
    sync_to_disk(part)
    part.replace(folder / LATEST_FILE)


def _remove_old(folder: Path, step: int, keep: int) -> None:
    paths = checkpoints_newest_first(folder)
    kept = [path for path in paths if (step_of_name(path.name) or 0) <= step][: max(1, keep)]
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)

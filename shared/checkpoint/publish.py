"""How a checkpoint becomes one: written under another name, renamed when it is whole; older ones are removed then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shared.checkpoint.choose import newest_first
from shared.checkpoint.manifest import FORMAT, LATEST, MANIFEST, STATE, seal, synchronise

_UNFINISHED: Final = ".writing-"


def begin(folder: str | Path, step: int) -> Path:
    """Make the folder that the files of a step's checkpoint are written to, until `publish` makes it one."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    part = folder / f"{_UNFINISHED}{step:08d}"
    part.mkdir()
    return part


def publish(part: Path, state: Any, files: Mapping[str, Mapping[str, Any]], keep: int = 2, form: str = FORMAT) -> Path:
    """Make a checkpoint of the folder that `begin` made, and remove those that are too old.

    Args:
        part: the folder.
        state: whatever JSON holds.
        files: name to what `seal` gave, of each file in it.
        keep: see `save`.
        form: name of its format.

    Returns:
        The checkpoint's folder.
    """
    folder, step = part.parent, int(part.name.removeprefix(_UNFINISHED))
    final = folder / f"step-{step:08d}"
    (part / STATE).write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
    files = {**files, STATE: seal(part / STATE)}
    (part / MANIFEST).write_text(json.dumps({"format": form, "step": step, "files": files}), encoding="utf-8")
    synchronise(part / MANIFEST)
    synchronise(part)
    if final.exists():  # only a damaged one: a whole one would have been continued from
        shutil.rmtree(final)
    part.rename(final)
    synchronise(folder)
    _point_to(folder, final.name)
    _remove_old(folder, step, keep)
    return final


def _point_to(folder: Path, name: str) -> None:
    part = folder / f"{LATEST}.part"
    part.write_text(json.dumps({"checkpoint": name}), encoding="utf-8")
    synchronise(part)
    part.replace(folder / LATEST)


def _remove_old(folder: Path, step: int, keep: int) -> None:
    paths = newest_first(folder)
    kept = [path for path in paths if int(path.name.removeprefix("step-")) <= step][: max(1, keep)]
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)

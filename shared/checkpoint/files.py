"""The files of a checkpoint: what they are called, how a folder of them becomes one, and whether they are whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypedDict

WHOLE_FORMAT: Final = "allranks-checkpoint/1"
SHARDED_FORMAT: Final = "allranks-sharded-checkpoint/1"
TENSORS_FILE: Final = "tensors.safetensors"
STATE_FILE: Final = "state.json"
MANIFEST_FILE: Final = "manifest.json"
LATEST_FILE: Final = "latest.json"
_STEP: Final = re.compile(r"step-(\d{8,})")
_UNFINISHED: Final = ".writing-"


class Seal(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


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
    """Make a checkpoint of the folder that `begin_checkpoint` made, remove those that are too old, and return its path.

    `files` says what `seal_file` gave for each file in it, by name; `keep`, 1 or more, is how many are kept; `form` is
    the name of its format.
    """
    folder = part.parent
    final = folder / f"step-{step:08d}"
    (part / STATE_FILE).write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
    files = {**files, STATE_FILE: seal_file(part / STATE_FILE)}
    (part / MANIFEST_FILE).write_text(json.dumps({"format": form, "step": step, "files": files}), encoding="utf-8")
    _sync_to_disk(part / MANIFEST_FILE)
    _sync_to_disk(part)
    if final.exists():  # only a damaged one: a whole one would have been continued from
        shutil.rmtree(final)
    part.rename(final)
    _sync_to_disk(folder)
    _point_to(folder, final.name)
    _remove_old(folder, step, keep)
    return final


def find_damage(
    path: Path, form: str | None = WHOLE_FORMAT, share: slice = slice(None), only: Collection[str] | None = None
) -> str | None:
    """Say what is wrong with a checkpoint by reading all of it, or None if it is whole; `form` of None is any format.

    `share` says which of its files to read, in the order of their names, where others read the others; `only` names
    the files to read, if not all.
    """
    try:
        manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
        if form is not None and manifest["format"] != form:
            return f"its format is {manifest['format']!r}, not {form!r}"
        step = _step_of_name(path.name)
        if step is not None and step != manifest["step"]:
            return f"its manifest says step {manifest['step']}, its name step {step}"
        if only is None:
            only = {STATE_FILE, *([TENSORS_FILE] if form == WHOLE_FORMAT else []), *manifest["files"]}
        for name in sorted(only)[share]:
            if name not in manifest["files"]:
                return f"{name} is not in its manifest"
            said, found = manifest["files"][name], _fingerprint(path / name)
            if said["bytes"] != found["bytes"]:
                return f"{name} has {found['bytes']} bytes instead of {said['bytes']}"
            if said["sha256"] != found["sha256"]:
                return f"the sha256 of {name} differs"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"it cannot be read ({type(error).__name__}: {error})"
    return None


def checkpoints_newest_first(folder: str | Path) -> list[Path]:
    """List the checkpoints of a folder, whole or not; `folder` may be one checkpoint."""
    folder = Path(folder)
    if (folder / MANIFEST_FILE).is_file():
        return [folder]
    names = {path.name for path in folder.glob("step-*")} if folder.is_dir() else set()
    with suppress(OSError, ValueError, KeyError, TypeError):  # the pointer is there where a listing lags behind
        names.add(str(json.loads((folder / LATEST_FILE).read_text(encoding="utf-8"))["checkpoint"]))
    steps = [(step, name) for name in names if (step := _step_of_name(name)) is not None]
    return [folder / name for _, name in sorted(steps, reverse=True)]


def seal_file(path: Path) -> Seal:
    """Wait until a file is on the disk, and take its fingerprint for the manifest: bytes and sha256."""
    _sync_to_disk(path)
    return _fingerprint(path)


def _step_of_name(name: str) -> int | None:
    """The step of a checkpoint's folder by its name; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _fingerprint(path: Path) -> Seal:
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _sync_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; a mount may not be able to do it for folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def _point_to(folder: Path, name: str) -> None:
    part = folder / f"{LATEST_FILE}.part"
    part.write_text(json.dumps({"checkpoint": name}), encoding="utf-8")
    _sync_to_disk(part)
    part.replace(folder / LATEST_FILE)


def _remove_old(folder: Path, step: int, keep: int) -> None:
    paths = checkpoints_newest_first(folder)
    kept = [path for path in paths if (_step_of_name(path.name) or 0) <= step][: max(1, keep)]
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)

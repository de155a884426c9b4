"""What a checkpoint's files are called, and whether they are what its manifest says; see the package."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, TypedDict

WHOLE_FORMAT: Final = "allranks-checkpoint/1"
SHARDED_FORMAT: Final = "allranks-sharded-checkpoint/1"
TENSORS_FILE: Final = "tensors.safetensors"
STATE: Final = "state.json"
MANIFEST_FILE: Final = "manifest.json"
LATEST_FILE: Final = "latest.json"
_STEP: Final = re.compile(r"step-(\d{8,})")


class Seal(TypedDict):
    """What a manifest says of a file."""

    bytes: int
    sha256: str


def step_of_name(name: str) -> int | None:
    """The step of a checkpoint's folder by its name; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def find_damage(
    path: Path, form: str | None = WHOLE_FORMAT, share: slice = slice(None), only: Collection[str] | None = None
) -> str | None:
    """Say what is wrong with a checkpoint by reading all of it, or None if it is whole.

    Args:
        path: the checkpoint.
        form: name of the format that it should have; None for any.
        share: which of its files to read, in the order of their names, where others read the others.
        only: names of the files to read; None for all.
    """
    try:
        manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
        if form is not None and manifest["format"] != form:
            return f"its format is {manifest['format']!r}, not {form!r}"
        step = step_of_name(path.name)
        if step is not None and step != manifest["step"]:
            return f"its manifest says step {manifest['step']}, its name step {step}"
        names = {STATE, *([TENSORS_FILE] if form == WHOLE_FORMAT else []), *manifest["files"]} if only is None else only
        for name in sorted(names)[share]:
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


def seal_file(path: Path) -> Seal:
    """Wait until a file is on the disk, and take its fingerprint for the manifest: bytes and sha256."""
    sync_to_disk(path)
    return _fingerprint(path)


def _fingerprint(path: Path) -> Seal:
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; a mount may not be able to do it for folders."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)

"""The files of a checkpoint: what they are called, what makes a folder of them a checkpoint, and which are there."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shared.checkpoint.tensor_file import DamageError, FileSeal, TensorFile, read_sealed
from shared.storage import (
    JSON_BYTES,
    list_folder,
    make_folder,
    read_bytes,
    remove_file,
    retry_transient,
    sync_folder,
    write_bytes,
    write_text,
)

FORMAT: Final = "allranks-checkpoint/2"
MANIFEST_FILE: Final = "manifest.json"
LATEST_FILE: Final = "latest.json"
_STEP: Final = re.compile(r"step-(\d{8,})")
_RANK: Final = re.compile(r"rank-(\d{5,})-\w+\.(json|safetensors)")
_STATE: Final = re.compile(r"state-\w+\.json")


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Which checkpoints are kept: the newest, as many as `newest` says, and those of each `every`-th step (0: none)."""

    newest: int = 2
    every: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What makes a folder a checkpoint: its step, and the seal of each of its files by name."""

    step: int
    files: Mapping[str, FileSeal]

    def encode(self) -> bytes:
        """As JSON with a sha256 of its own: a bit that flips in it may not name another step, or leave out a file."""
        files = {name: seal.to_json() for name, seal in sorted(self.files.items())}
        content: dict[str, Any] = {"format": FORMAT, "step": self.step, "files": files}
        return json.dumps(content | {"sha256": _digest(content)}, indent=1).encode()

    def state_file(self) -> str:
        """Name of the file that holds what the ranks have in common."""
        return next(name for name in self.files if _STATE.fullmatch(name))

    def rank_file(self, rank: int) -> str | None:
        """Name of the file that holds what a rank alone had kept, if it kept anything."""
        found = ((name, _RANK.fullmatch(name)) for name in self.files)
        return next((name for name, match in found if match and match[2] == "json" and int(match[1]) == rank), None)


def step_folder(folder: Path, step: int) -> Path:
    """Folder of a step's checkpoint."""
    return folder / f"step-{step:08d}"


def rank_name(rank: int, attempt: str, kind: str) -> str:
    """Name of a rank's file of a kind (`json`, `safetensors`), which no other attempt at the same step gives."""
    return f"rank-{rank:05d}-{attempt}.{kind}"


def step_of(path: Path) -> int:
    """The step of a checkpoint by the name of its folder; 0 if that does not say it."""
    return _step_of_name(path.name) or 0


def commit_checkpoint(
    folder: Path, step: int, attempt: str, state: str, files: Mapping[str, FileSeal], keep: KeepRule
) -> Path:
    """Make a checkpoint of the files that the ranks have written, remove those that are too old, and return its path.

    `state` is JSON. The manifest is written after all that it names, and is not there, or is no JSON, before it is
    whole. One process calls this.
    """
    path, name, content = step_folder(folder, step), f"state-{attempt}.json", state.encode()
    write_bytes(path / name, content)
    manifest = Manifest(step, {**files, name: FileSeal.of_bytes(content)})
    sync_folder(path)
    write_bytes(path / MANIFEST_FILE, manifest.encode())
    sync_folder(path)
    sync_folder(folder)
    with suppress(OSError):  # a hint, for where listings lag
        write_text(folder / LATEST_FILE, json.dumps({"checkpoint": path.name, "attempt": attempt}))
    _remove_leftovers(path, manifest)
    _remove_old(folder, step, keep)
    return path


def newest_attempt(folder: Path) -> str:
    """Which attempt wrote the newest checkpoint of a folder, by the hint beside it; empty where that is not known."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return str(json.loads(read_bytes(folder / LATEST_FILE, JSON_BYTES))["attempt"])
    return ""


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        DamageError: there is none, or it is not what was written.
    """
    try:
        content = json.loads(read_bytes(path / MANIFEST_FILE, JSON_BYTES))
        if content["format"] != FORMAT:
            raise DamageError(f"its format is {content['format']!r}, not {FORMAT!r}")
        if content.pop("sha256") != _digest(content):
            raise DamageError(f"the sha256 of {MANIFEST_FILE} differs")
        manifest = Manifest(
            int(content["step"]), {name: FileSeal.from_json(said) for name, said in content["files"].items()}
        )
    except FileNotFoundError:
        raise DamageError(f"{MANIFEST_FILE} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamageError(f"its {MANIFEST_FILE} cannot be read ({type(error).__name__}: {error})") from None
    if strange := [name for name in manifest.files if not (_STATE.fullmatch(name) or _RANK.fullmatch(name))]:
        raise DamageError(f"its {MANIFEST_FILE} names {strange[0]!r}, which is not a file of a checkpoint")
    if not any(_STATE.fullmatch(name) for name in manifest.files):
        raise DamageError(f"its {MANIFEST_FILE} names no file with the state")
    step = _step_of_name(path.name)
    if step is not None and step != manifest.step:
        raise DamageError(f"its manifest says step {manifest.step}, its name step {step}")
    return manifest


def find_damage(path: Path, share: slice = slice(None), *, whole: bool = False) -> str | None:
    """Say what is wrong with a checkpoint, or None if nothing was found.

    Small files and the headers of the others are read, and the sizes compared; every tensor is checked again when it is
    loaded. With `whole` all bytes are read now. `share` says which of its files to look at, in the order of their
    names, where others look at the others.
    """
    try:
        manifest = read_manifest(path)
        for name in sorted(manifest.files)[share]:
            _check_file(path / name, manifest.files[name], whole=whole)
    except DamageError as damage:
        return str(damage)
    except OSError as error:
        return f"it cannot be read ({type(error).__name__}: {error})"
    return None


def _check_file(path: Path, seal: FileSeal, *, whole: bool) -> None:
    if path.suffix != ".safetensors":
        read_sealed(path, seal)
        return
    try:
        file = TensorFile(path, seal)
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    try:
        if whole:
            file.check_pieces()
    finally:
        file.close()


def checkpoints_newest_first(folder: str | Path) -> list[Path]:
    """List the checkpoints of a folder, whole or not; `folder` may be one checkpoint."""
    folder = Path(folder)
    if retry_transient((folder / MANIFEST_FILE).is_file):
        return [folder]
    names = {path.name for path in list_folder(folder)}
    with suppress(
        OSError, ValueError, KeyError, TypeError, RecursionError
    ):  # the hint is there where a listing lags behind
        names.add(str(json.loads(read_bytes(folder / LATEST_FILE, JSON_BYTES))["checkpoint"]))
    steps = [(step, name) for name in names if (step := _step_of_name(name)) is not None]
    return [folder / name for _, name in sorted(steps, reverse=True)]


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _step_of_name(name: str) -> int | None:
    """The step of a checkpoint's folder by its name; None for any other name."""
    match = _STEP.fullmatch(name)
    return int(match[1]) if match else None


def _remove_leftovers(path: Path, manifest: Manifest) -> None:
    """Remove what an earlier attempt at the same step has left; it has other names, so that it does no harm."""
    with suppress(OSError):
        for found in list_folder(path):
            is_ours = _RANK.fullmatch(found.name) or _STATE.fullmatch(found.name)
            if is_ours and found.name not in manifest.files:
                found.unlink(missing_ok=True)


def _remove_old(folder: Path, step: int, keep: KeepRule) -> None:
    """Remove what is not to be kept, and what later steps have left: they belong to a future that was given up."""
    with suppress(OSError):
        kept = 0
        for path in checkpoints_newest_first(folder):
            number = step_of(path)
            whole = number <= step and (path / MANIFEST_FILE).is_file()  # or an attempt that was never finished
            stays = whole and (kept < max(1, keep.newest) or bool(keep.every and number % keep.every == 0))
            kept += whole
            if not stays:
                remove_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, its manifest first: what is left of it, if this is broken off, is none.

    Of a link the target stays.
    """
    with suppress(OSError):
        (path if path.is_symlink() else path / MANIFEST_FILE).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def remove_oldest(folder: Path, step: int, every: int) -> bool:
    """Make room for the checkpoint of a step: remove broken saves and the oldest checkpoint; whether one has gone.

    The newest that is whole always stays, and so do those of each `every`-th step. Broken saves of the step itself are
    those of processes that were killed: nobody writes to the folder meanwhile.
    """
    listed = checkpoints_newest_first(folder)
    broken = [path for path in listed if not (path / MANIFEST_FILE).is_file()]
    known = [path for path in listed if step_of(path) != step]
    newest = next((path for path in known if find_damage(path, whole=True) is None), None)
    others = [path for path in known if path not in (*broken, newest) and not (every and step_of(path) % every == 0)]
    removed = broken + (others[-1:] if newest else [])
    for path in removed:
        remove_checkpoint(path)
    return bool(removed)


def remove_attempt(path: Path, attempt: str, rank: int | None = None) -> None:
    """Remove what an attempt at a step has left in its folder, after it has failed: of one rank, or all of it.

    What an earlier attempt at the same step has made whole stays.
    """
    begin = "" if rank is None else f"rank-{rank:05d}-"
    with suppress(OSError):
        if rank is None and _names_attempt(path, attempt):
            (path / MANIFEST_FILE).unlink(missing_ok=True)
        for found in list_folder(path):
            if f"-{attempt}." in found.name and found.name.startswith(begin):
                found.unlink(missing_ok=True)
    if rank is None:
        with suppress(OSError):
            path.rmdir()


def _names_attempt(path: Path, attempt: str) -> bool:
    """Whether a folder's manifest is of this attempt, or of none that can be read."""
    try:
        return any(f"-{attempt}." in name for name in read_manifest(path).files)
    except DamageError:
        return True


def begin_folder(folder: Path, step: int) -> Path:
    """Make the folder of a step's checkpoint; another node may have made it, and may not see it yet.

    A link in its place is replaced: nothing is written elsewhere.
    """
    path = step_folder(folder, step)
    if path.is_symlink():
        remove_file(path)
    make_folder(path)
    return path

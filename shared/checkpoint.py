"""Checkpoints that survive a kill at any moment and a damaged disk: safetensors and JSON, no pickle.

A folder of checkpoints::

    step-00000120/tensors.safetensors   every tensor
    step-00000120/state.json            everything else that the ranks have in common
    step-00000120/rank-00003.json       what rank 3 alone has, such as the state of its random number generators
    step-00000120/manifest.json         sha256 and size of all of them
    latest.json                         which one is the newest, written last

One is written under another name, synchronised to the disk and renamed when it is whole. A mounted blob store has no
atomic rename and its listings lag, so nothing that is read is believed before its sha256 is right, and the one
before is kept to fall back to.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from shared.distributed import Refusal, World

FORMAT: Final = "allranks-checkpoint/1"
TENSORS: Final = "tensors.safetensors"
STATE: Final = "state.json"
MANIFEST: Final = "manifest.json"
LATEST: Final = "latest.json"
VISIBLE_SECONDS: Final = 30.0
"""How long rank 0 waits until it sees what the ranks of other nodes have written: listings of mounted stores lag."""
_STEP: Final = re.compile(r"step-(\d{8,})")
_UNFINISHED: Final = ".writing-"
_STAGE: Final = ".ranks"
_RANK: Final = "rank-{:05d}.json"


def save(
    folder: str | Path,
    step: int,
    tensors: Mapping[str, Any],
    state: Any,
    keep: int = 2,
    ranks: Collection[Path] = (),
) -> Path:
    """Write the checkpoint of a step and remove those that are too old; one process calls this.

    Args:
        folder: the folder of checkpoints; made if needed.
        step: optimizer steps done, 0 or more.
        tensors: torch tensors (on any device, none sharing memory with another) or NumPy arrays, not both.
        state: whatever JSON holds.
        keep: how many to keep, 1 or more. Those of later steps go too: they belong to a future that was given up.
        ranks: files of ranks that `stage_rank_states` has written; they are copied into it.

    Returns:
        The checkpoint's folder.
    """
    part = begin(folder, step)
    _write_tensors(part / TENSORS, tensors)
    copies = [Path(shutil.copyfile(path, part / path.name)) for path in ranks]
    return publish(part, state, {path.name: seal(path) for path in (part / TENSORS, *copies)}, keep)


def save_together(
    world: World,
    folder: str | Path,
    step: int,
    own: Any,
    content: Callable[[], tuple[Mapping[str, Any], Any]],
    timeout: timedelta,
) -> None:
    """Write the checkpoint of a step; every rank calls this, and rank 0 writes all but the others' own files.

    Args:
        world: the ranks.
        folder: the folder of checkpoints, the same one for all ranks.
        step: optimizer steps done, 0 or more.
        own: what this rank alone has to keep; whatever JSON holds.
        content: gives `tensors` and `state` as for `save`; rank 0 calls it.
        timeout: how long to wait for the others.

    Raises:
        Refusal: if the ranks do not see the same folder.
    """
    part = Path(world.once(lambda: str(begin(folder, step)), name=f"begin step {step}", scope="job"))
    files = write_rank_states(world, part, own, timeout)
    if files is not None:
        tensors, state = content()
        _write_tensors(part / TENSORS, tensors)
        publish(part, state, {TENSORS: seal(part / TENSORS), **files})


def stage_rank_states(world: World, folder: str | Path, own: Any, timeout: timedelta) -> list[Path]:
    """Write each rank's own state beside the checkpoints, for one that rank 0 alone saves; every rank calls this.

    Returns:
        The files, on rank 0; nothing on the others.
    """

    def begin_stage() -> str:
        place = Path(folder) / _STAGE
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return str(place)

    place = Path(world.once(begin_stage, name="begin the ranks' states", scope="job"))
    return [place / name for name in write_rank_states(world, place, own, timeout) or {}]


def write_rank_states(world: World, part: Path, own: Any, timeout: timedelta) -> dict[str, dict[str, Any]] | None:
    """Write what each rank alone has into a folder; every rank calls this.

    Returns:
        Name to what `seal` gave of each file, on rank 0; None on the others.

    Raises:
        Refusal: if rank 0 does not see what another rank has written.
    """
    path = part / _RANK.format(world.rank)
    part.mkdir(parents=True, exist_ok=True)  # another node may not see it yet
    path.write_text(json.dumps(own, allow_nan=False), encoding="utf-8")
    collected = world.collect([path.name, seal(path)], f"state of the ranks in {part.name}", timeout)
    if collected is None:
        return None
    files: dict[str, dict[str, Any]] = dict(collected)
    check_visible(part, files)
    return files


def check_visible(part: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Wait until this process sees what all ranks have written into the folder of a checkpoint.

    Raises:
        Refusal: if it does not.
    """
    until = time.monotonic() + VISIBLE_SECONDS
    for name, said in files.items():
        while not (part / name).is_file() or (part / name).stat().st_size != said["bytes"]:
            if time.monotonic() > until:
                raise Refusal(
                    f"Another rank has written {name} into {part}, and rank 0 does not see it. The checkpoints folder "
                    "has to be the same one on all nodes: give an output of mode rw_mount, or a shared folder."
                )
            time.sleep(0.1)


def read_rank_state(path: str | Path, rank: int) -> Any:
    """Read what a rank alone had kept in a checkpoint.

    Raises:
        Refusal: if it is not there or damaged.
    """
    name = _RANK.format(rank)
    why = damage(Path(path), only=[name], form=None)
    if why is not None:
        raise Refusal(f"The checkpoint {path} is damaged: {why}.")
    return json.loads((Path(path) / name).read_text(encoding="utf-8"))


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
    _synchronise(part / MANIFEST)
    _synchronise(part)
    if final.exists():  # only a damaged one: a whole one would have been continued from
        shutil.rmtree(final)
    part.rename(final)
    _synchronise(folder)
    _point_to(folder, final.name)
    _remove_old(folder, step, keep)
    return final


def load(path: str | Path) -> tuple[dict[str, Any], Any]:
    """Read one checkpoint: its tensors (torch tensors on the CPU if torch is imported, else NumPy arrays), its state.

    Raises:
        Refusal: if it is damaged.
    """
    path = Path(path)
    why = damage(path, only=[STATE, TENSORS])
    if why is not None:
        raise Refusal(f"The checkpoint {path} is damaged: {why}.")
    if "torch" in sys.modules:
        from safetensors.torch import load_file
    else:
        from safetensors.numpy import load_file
    return dict(load_file(path / TENSORS)), json.loads((path / STATE).read_text(encoding="utf-8"))


def newest_valid(folder: str | Path) -> Path | None:
    """Find the newest checkpoint that is whole, or None; a damaged one is passed over with a line on standard error.

    `folder` may be a folder of checkpoints or one checkpoint.
    """
    for path in newest_first(folder):
        why = damage(path)
        if why is None:
            return path
        print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)
    return None


def damage(
    path: Path, form: str | None = FORMAT, share: slice = slice(None), only: Collection[str] | None = None
) -> str | None:
    """Say what is wrong with a checkpoint by reading all of it, or None if it is whole.

    Args:
        path: the checkpoint.
        form: name of the format that it should have; None for any.
        share: which of its files to read, in the order of their names, where others read the others.
        only: names of the files to read; None for all.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if form is not None and manifest["format"] != form:
            return f"its format is {manifest['format']!r}, not {form!r}"
        if (match := _STEP.fullmatch(path.name)) and int(match[1]) != manifest["step"]:
            return f"its manifest says step {manifest['step']}, its name step {int(match[1])}"
        names = {STATE, *([TENSORS] if form == FORMAT else []), *manifest["files"]} if only is None else only
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


def check_same(state: Mapping[str, Any], now: Mapping[str, Any], source: str | Path) -> None:
    """Compare the settings in a checkpoint's state to those of this run.

    Raises:
        Refusal: naming each setting that differs, with both values; or if there are none, as in one of Lightning's.
    """
    saved = state.get("settings")
    if not isinstance(saved, Mapping):
        raise Refusal(
            f"The checkpoint {source} was written by another component. Give one of this component, or an empty "
            "checkpoints folder and no resume_from."
        )
    differing = [name for name in now if saved.get(name) != now[name]]
    if differing:
        pairs = "; ".join(f"{name} was {saved.get(name)!r} and is now {now[name]!r}" for name in differing)
        raise Refusal(
            f"The checkpoint {source} belongs to another training: {pairs}. "
            "Use the same values, or give an empty checkpoints folder and no resume_from."
        )


def newest_first(folder: str | Path) -> list[Path]:
    """List the checkpoints of a folder, whole or not; `folder` may be one checkpoint."""
    folder = Path(folder)
    if (folder / MANIFEST).is_file():
        return [folder]
    names = {path.name for path in folder.glob("step-*")} if folder.is_dir() else set()
    with suppress(OSError, ValueError, KeyError, TypeError):  # the pointer is there where a listing lags behind
        names.add(str(json.loads((folder / LATEST).read_text(encoding="utf-8"))["checkpoint"]))
    steps = [(int(match[1]), match[0]) for match in map(_STEP.fullmatch, names) if match]
    return [folder / name for _, name in sorted(steps, reverse=True)]


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> None:
    if "torch" in sys.modules and any(hasattr(tensor, "detach") for tensor in tensors.values()):
        from safetensors.torch import save_file

        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    else:
        import numpy as np
        from safetensors.numpy import save_file

        save_file({name: np.asarray(array, order="C") for name, array in tensors.items()}, path)


def seal(path: Path) -> dict[str, Any]:
    """Wait until a file is on the disk, and take its fingerprint for the manifest: bytes and sha256."""
    _synchronise(path)
    return _fingerprint(path)


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _synchronise(path: Path) -> None:
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
    part = folder / f"{LATEST}.part"
    part.write_text(json.dumps({"checkpoint": name}), encoding="utf-8")
    _synchronise(part)
    part.replace(folder / LATEST)


def _remove_old(folder: Path, step: int, keep: int) -> None:
    paths = newest_first(folder)
    kept = [path for path in paths if int(path.name.removeprefix("step-")) <= step][: max(1, keep)]
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)

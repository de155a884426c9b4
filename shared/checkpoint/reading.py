"""Read a checkpoint on any number of ranks, and choose the one that a training continues from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.checkpoint.files import checkpoints_newest_first, find_damage, read_manifest
from shared.checkpoint.tensor_file import DamageError, StoredPiece, TensorFile, read_sealed
from shared.distributed import Refusal, World
from shared.tensors import is_torch


class CheckpointReader:
    """Reads pieces of any size out of a checkpoint; its files stay open as long as it is there.

    Attributes:
        path: where the checkpoint lies.
        state: what the ranks had in common.
        shapes: name of each tensor to the shape of the whole.

    Raises:
        DamageError: from each method, if something that is read is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._manifest = path, read_manifest(path)
        name = self._manifest.state_file()
        self.state: Any = json.loads(read_sealed(path / name, self._manifest.files[name]))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._pieces: dict[str, list[tuple[TensorFile, StoredPiece]]] = {}
        for name in sorted(name for name in self._manifest.files if name.endswith(".safetensors")):
            try:
                file = TensorFile(path / name, self._manifest.files[name])
            except FileNotFoundError:
                raise DamageError(f"{name} is missing") from None
            for piece in file.pieces:
                self.shapes[piece.name] = piece.shape
                self._pieces.setdefault(piece.name, []).append((file, piece))

    def own_state(self, rank: int) -> Any:
        """Read what a rank alone had kept.

        Raises:
            Refusal: it had kept nothing.
        """
        name = self._manifest.rank_file(rank)
        if name is None:
            raise Refusal(f"The checkpoint {self.path} has no file of rank {rank}.")
        return json.loads(read_sealed(self.path / name, self._manifest.files[name]))

    def tensors(self) -> dict[str, Any]:
        """Read all tensors that were saved whole: of torch, on the CPU, if that is imported, else NumPy arrays."""
        return {name: self._whole(name) for name in self.shapes}

    def _whole(self, name: str) -> Any:
        file, piece = self._pieces[name][0]
        if piece.size != piece.shape:
            raise Refusal(f"The checkpoint {self.path} holds {name} in parts: another component has written it.")
        return file.read(piece)

    def read(self, name: str, values: Any, offset: tuple[int, ...]) -> None:
        """Fill `values`, a tensor of torch, with the part of a tensor that begins at `offset`, from all that hold it.

        Raises:
            Refusal: if there is no such tensor in the checkpoint, or not all of it.
        """
        assert is_torch(values), name  # noqa: S101  # NumPy arrays are read whole
        filled = 0
        for file, piece in self._pieces.get(name, []):
            overlap = [
                (max(o, s), min(o + n, s + m))
                for o, n, s, m in zip(offset, values.shape, piece.offset, piece.size, strict=True)
            ]
            if any(first >= last for first, last in overlap):
                continue
            there = tuple(slice(first - s, last - s) for (first, last), s in zip(overlap, piece.offset, strict=True))
            here = tuple(slice(first - o, last - o) for (first, last), o in zip(overlap, offset, strict=True))
            found = file.read(piece)[there]
            values[here].copy_(found)
            filled += found.numel()
        if filled != values.numel():
            raise Refusal(
                f"The checkpoint {self.path} does not fit the model: of {name} {list(values.shape)} at {list(offset)} "
                f"it holds {filled} of {values.numel()} elements."
            )


def load_checkpoint(path: str | Path) -> tuple[dict[str, Any], Any]:
    """Read one checkpoint whose tensors are whole: its tensors, as `CheckpointReader.tensors`, and its state.

    Raises:
        Refusal: if it is damaged.
    """
    try:
        reader = CheckpointReader(Path(path))
        return reader.tensors(), reader.state
    except DamageError as damage:
        raise Refusal(f"The checkpoint {path} is damaged: {damage}.") from None


def newest_valid_checkpoint(folder: str | Path) -> Path | None:
    """Find the newest checkpoint that is whole, or None; a damaged one is passed over with a line on standard error.

    `folder` may be a folder of checkpoints or one checkpoint. All bytes are read.
    """
    for path in checkpoints_newest_first(folder):
        why = find_damage(path, whole=True)
        if why is None:
            return path
        note_damage(path, why)
    return None


def checkpoints_to_try(
    world: World | None, folder: Path, resume_from: Path | None, *, whole: bool = False
) -> Iterator[Path]:
    """Give the checkpoints of our folder, then those of `resume_from`, newest first, without those known as damaged.

    Rank 0 says which there are: another node may see a mounted folder as it was a moment ago. All ranks read them, each
    its share, and agree; `whole` reads all bytes, as is done with the last one anyway: what would be found in it later
    has no other to fall back to. A `world` of None is one process that is alone. One that is damaged is passed over
    with a line on standard error.
    """

    def known() -> list[str]:
        return [str(path) for place in (folder, resume_from) if place for path in checkpoints_newest_first(place)]

    names = (
        known()
        if world is None
        else world.once(known, name="list the checkpoints", scope="job", timeout=world.step_timeout)
    )
    for name in names:
        path, whole = Path(name), whole or name == names[-1]
        share = slice(None) if world is None else slice(world.rank, None, world.world_size)
        why = agree_on_damage(world, path, find_damage(path, share, whole=whole))
        if why is None:
            yield path
        elif world is None or world.is_main:
            note_damage(path, why)


def agree_on_damage(world: World | None, path: Path, why: str | None) -> str | None:
    """Give all ranks what the first of them has found wrong with a checkpoint, or None if it is whole for all."""
    if world is None:
        return why
    whys = world.collect(why, f"is {path.name} whole", world.solo_timeout)
    first = next((why for why in whys or () if why is not None), None)
    return world.once(lambda: first, name=f"is {path.name} whole for all", scope="job", timeout=world.step_timeout)


def note_damage(path: Path, why: str) -> None:
    """Say on standard error that a checkpoint is not used."""
    print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)


def check_same_settings(state: Mapping[str, Any], now: Mapping[str, Any], source: str | Path) -> None:
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

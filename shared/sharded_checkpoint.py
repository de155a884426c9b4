"""Checkpoints that all ranks write together, each what it holds, and that any number of ranks reads.

As in `shared.checkpoint`, of which this is the variant for models that no rank has whole::

    step-00000120/rank-00003.safetensors   the pieces of rank 3; its header says where in the whole each belongs
    step-00000120/rank-00003.json          what rank 3 alone has besides tensors
    step-00000120/state.json               everything else
    step-00000120/manifest.json            sha256 and size of all of them

Every rank writes into a folder of another name; when all have, rank 0 writes the manifest and renames it. So a rank
that dies in between leaves a folder that is no checkpoint. torch's own distributed checkpoints keep their metadata as
pickle, which runs whatever code is in it; these are safetensors and JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from shared import checkpoint
from shared.distributed import Refusal, World

FORMAT: Final = "allranks-sharded-checkpoint/1"
PIECES: Final = "pieces"
"""Entry of a safetensors file's metadata: JSON, name to shape of the whole tensor and offset of the piece in it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a named tensor: its values, the shape of the whole, and where it belongs in it."""

    name: str
    values: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]


def save(
    folder: str | Path, step: int, parts: Iterable[Part], state: Any, own: Any, world: World, timeout: timedelta
) -> None:
    """Write the checkpoint of a step; every rank calls this with its own parts, and rank 0's state is written.

    Args:
        folder: the folder of checkpoints, the same one for all ranks.
        step: optimizer steps done, 0 or more.
        parts: what this rank answers for; no element of a tensor has two ranks that do.
        state: whatever JSON holds.
        own: what this rank alone has to keep besides tensors; whatever JSON holds.
        world: the ranks.
        timeout: how long to wait for the others.
    """
    made = world.once(lambda: str(checkpoint.begin(folder, step)), name=f"begin step {step}", scope="job")
    path = Path(made) / f"rank-{world.rank:05d}.safetensors"
    _write(path, parts)
    pieces = world.collect([path.name, checkpoint.seal(path)], f"checkpoint of step {step}", timeout)
    files = {**dict(pieces or []), **(checkpoint.write_rank_states(world, path.parent, own, timeout) or {})}
    checkpoint.check_visible(path.parent, files)
    world.once(
        lambda: str(checkpoint.publish(path.parent, state, files, form=FORMAT)),
        name=f"publish step {step}",
        scope="job",
    )


def choose(world: World, folder: str | Path, resume_from: Path | None) -> Path | None:
    """Choose the newest whole checkpoint of our folder, else of `resume_from`; None to start from the start.

    Rank 0 says which there are; all ranks read them, each its share, and agree. One that is damaged is passed over with
    a line on standard error.

    Raises:
        Refusal: if `resume_from` holds no whole checkpoint.
    """

    def known() -> list[str]:
        return [str(path) for place in (folder, resume_from) if place for path in checkpoint.newest_first(place)]

    for name in world.once(known, name="list the checkpoints", scope="job"):
        path = Path(name)
        share = slice(world.rank, None, world.world_size)
        whys = world.gather(checkpoint.damage(path, FORMAT, share), f"is {path.name} whole", timedelta(hours=1))
        why = next((why for why in whys if why is not None), None)
        if why is None:
            return path
        if world.is_main:
            print(f"checkpoint {path} is passed over: {why}", file=sys.stderr, flush=True)
    if resume_from:
        raise Refusal(f"resume_from {resume_from} holds no whole checkpoint (step-*/manifest.json and its files).")
    return None


class Reader:
    """Reads pieces of any size out of a whole checkpoint; its files stay open as long as it is there.

    Args:
        path: the checkpoint.

    Attributes:
        state: what was saved beside the tensors.
        shapes: of the whole tensors, by name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = json.loads((path / checkpoint.STATE).read_text(encoding="utf-8"))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._pieces: dict[str, list[tuple[Any, tuple[int, ...], tuple[int, ...]]]] = {}
        names = json.loads((path / checkpoint.MANIFEST).read_text(encoding="utf-8"))["files"]
        for file in sorted(name for name in names if name.endswith(".safetensors")):
            opened: Any = safe_open(path / file, "pt")
            for name, (shape, offset, size) in json.loads(opened.metadata()[PIECES]).items():
                self.shapes[name] = tuple(shape)
                self._pieces.setdefault(name, []).append((opened, tuple(offset), tuple(size)))

    def read(self, name: str, values: torch.Tensor, offset: tuple[int, ...]) -> None:
        """Fill `values` with the part of a tensor that begins at `offset`, from whichever files hold it.

        Raises:
            Refusal: if there is no such tensor in the checkpoint, or not all of it.
        """
        filled = 0
        for opened, start, size in self._pieces.get(name, []):
            overlap = [
                (max(o, s), min(o + n, s + m)) for o, n, s, m in zip(offset, values.shape, start, size, strict=True)
            ]
            if any(first >= last for first, last in overlap):
                continue
            there = tuple(slice(first - s, last - s) for (first, last), s in zip(overlap, start, strict=True))
            here = tuple(slice(first - o, last - o) for (first, last), o in zip(overlap, offset, strict=True))
            found = opened.get_slice(name)[there] if there else opened.get_tensor(name)
            values[here].copy_(found)
            filled += found.numel()
        if filled != values.numel():
            raise Refusal(
                f"The checkpoint {self.path} does not fit the model: of {name} {list(values.shape)} at {list(offset)} "
                f"it holds {filled} of {values.numel()} elements."
            )


def _write(path: Path, parts: Iterable[Part]) -> None:
    tensors, places = {}, {}
    for part in parts:
        tensors[part.name] = part.values.detach().cpu().contiguous()
        places[part.name] = [part.shape, part.offset, list(part.values.shape)]
    save_file(tensors, path, metadata={PIECES: json.dumps(places)})

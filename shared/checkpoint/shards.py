"""Checkpoints of models that no rank has whole: each rank writes what it holds, any number of ranks reads.

torch's own distributed checkpoints pickle their metadata, or write safetensors that are read without a word when one
of them is missing; docs/decisions.md has what was tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from shared.checkpoint.files import MANIFEST_FILE, SHARDED_FORMAT, STATE_FILE, begin_checkpoint, publish_checkpoint
from shared.checkpoint.ranks import write_rank_states
from shared.distributed import Refusal, World

_PIECES: Final = "pieces"
"""Entry of a safetensors file's metadata: JSON, name to shape of the whole tensor and offset of the piece in it."""


@dataclass(frozen=True, slots=True)
class ShardPart:
    """A piece of a named tensor: its values, the shape of the whole, and where it belongs in it."""

    name: str
    values: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]


def save_shards(
    folder: str | Path,
    step: int,
    parts: Iterable[ShardPart],
    state: object,
    own: object,
    world: World,
    timeout: timedelta,
) -> None:
    """Write the checkpoint of a step; every rank calls this with its own parts, and rank 0's state is written.

    No element of a tensor is in the parts of two ranks.
    """
    made = world.once(lambda: str(begin_checkpoint(folder, step)), name=f"begin step {step}", scope="job")
    path = Path(made) / f"rank-{world.rank:05d}.safetensors"
    _write(path, parts)
    files = write_rank_states(world, path.parent, own, timeout, beside=path) or {}
    world.once(
        lambda: str(publish_checkpoint(path.parent, step, state, files, form=SHARDED_FORMAT)),
        name=f"publish step {step}",
        scope="job",
    )


class ShardReader:
    """Reads pieces of any size out of a whole checkpoint; its files stay open as long as it is there.

    `state` is what was saved beside the tensors, `shapes` are those of the whole tensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = json.loads((path / STATE_FILE).read_text(encoding="utf-8"))
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._pieces: dict[str, list[tuple[Any, tuple[int, ...], tuple[int, ...]]]] = {}
        names = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))["files"]
        for file in sorted(name for name in names if name.endswith(".safetensors")):
            opened: Any = safe_open(path / file, "pt")
            for name, (shape, offset, size) in json.loads(opened.metadata()[_PIECES]).items():
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


def _write(path: Path, parts: Iterable[ShardPart]) -> None:
    tensors, places = {}, {}
    for part in parts:
        tensors[part.name] = part.values.detach().cpu().contiguous()
        places[part.name] = [part.shape, part.offset, list(part.values.shape)]
    save_file(tensors, path, metadata={_PIECES: json.dumps(places)})

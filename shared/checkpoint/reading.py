"""Reading a checkpoint, on any number of ranks; nothing is given out before its hash was right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shared.checkpoint.files import read_manifest
from shared.checkpoint.seal import DamageError, read_sealed
from shared.checkpoint.tensor_file import StoredPiece, TensorFile
from shared.distributed import Refusal
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
        for name in self._manifest.tensor_files():
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

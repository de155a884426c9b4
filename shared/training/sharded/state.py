"""All that a training in parts needs to go on as if it had never stopped, on the same ranks or on others."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from shared import checkpoint, sharded_checkpoint
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import Decoder
from shared.sharded_checkpoint import Part
from shared.training.position import Position, settings_of
from shared.training.sharded.pieces import Piece, piece_of, pieces_of
from shared.training.state import random_state, set_random_state


class ShardedSaver:
    """Saves and restores one training of a model that `fully_shard` has divided.

    Args:
        args: the trainer's; its `checkpoints` is the folder, which all nodes have to share.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: whose ranks each write and read their parts.
        module: this rank's part of the model.
        optimizer: whose state is kept; its settings come from the arguments.
    """

    def __init__(
        self, args: argparse.Namespace, data: Dataset, world: World, module: Decoder, optimizer: torch.optim.Optimizer
    ) -> None:
        self.folder = Path(args.checkpoints)
        self.settings = settings_of(args, data)
        self._timeout = timedelta(minutes=args.step_timeout)
        self.world, self.module, self.optimizer = world, module, optimizer

    def save(self, position: Position) -> None:
        """Write a checkpoint; every rank calls this at the same step.

        Raises:
            Refusal: if a weight is not finite: such a checkpoint would only hide the whole one before it.
        """
        self._check_finite(position)
        generators = self.world.gather(random_state(), f"random numbers at step {position.step}", self._timeout)
        state = {
            "position": asdict(position),
            "settings": self.settings,
            "generators": generators,
            "world_size": self.world.world_size,
        }
        sharded_checkpoint.save(self.folder, position.step, self._parts(), state, self.world, self._timeout)

    def restore(self, resume_from: str | None) -> Position:
        """Go on from the newest checkpoint of our folder, else from that of `resume_from`, else from the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = sharded_checkpoint.choose(self.world, self.folder, resume_from)
        if path is None:
            return Position()
        saved = sharded_checkpoint.Reader(path)
        checkpoint.check_same(saved.state["settings"], self.settings, path)
        for name, local, piece in pieces_of(self.module):
            saved.read(f"model.{name}", local, piece.offset)
        for name, parameter in self.module.named_parameters():
            prefix = f"optimizer.{name}."
            for key in [key for key in saved.shapes if key.startswith(prefix)]:
                entry = _read_entry(saved, key, parameter)
                self.optimizer.state[parameter][key.removeprefix(prefix)] = entry
        if saved.state["world_size"] == self.world.world_size:  # other ranks start other, freshly seeded sequences
            set_random_state(saved.state["generators"][self.world.rank])
        position = Position(**saved.state["position"])
        self.world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
        return position

    def _parts(self) -> Iterator[Part]:
        """What this rank answers for, of the parameters and of what the optimizer keeps of each."""
        for name, parameter in self.module.named_parameters():
            entries = {f"optimizer.{name}.{key}": value for key, value in self.optimizer.state[parameter].items()}
            for key, value in {f"model.{name}": parameter, **entries}.items():
                if isinstance(value, DTensor):
                    local, piece = value.detach().to_local(), piece_of(value)
                else:  # the same on all ranks, such as the number of steps
                    local, piece = value, Piece((), (), (), owned=_leads(parameter))
                if piece.owned and not piece.empty:
                    yield Part(key, local, piece.shape, piece.offset)

    def _check_finite(self, position: Position) -> None:
        sums = [local.sum(dtype=torch.float64).cpu() for _, local, _ in pieces_of(self.module)]
        finite = bool(torch.isfinite(torch.stack(sums)).all())
        if self.world.any(not finite, f"not finite at step {position.step}", self._timeout):
            raise Refusal(
                f"The weights are not finite after step {position.step}. Lower learning_rate or set clip_norm; the "
                f"checkpoints in {self.folder} are from before."
            )


def _read_entry(saved: sharded_checkpoint.Reader, key: str, parameter: DTensor) -> torch.Tensor:
    """Read what the optimizer keeps of a parameter: something of the same shape, or one number."""
    if saved.shapes[key] == ():
        number = torch.zeros((), device=parameter.to_local().device)
        saved.read(key, number, ())
        return number
    entry = torch.zeros_like(parameter)
    saved.read(key, entry.to_local(), piece_of(parameter).offset)
    return entry.detach()


def _leads(parameter: DTensor) -> bool:
    """Whether this rank is the first of those among which a parameter is divided."""
    return not any(parameter.device_mesh.get_coordinate())

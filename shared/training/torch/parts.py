"""What a training whose parts lie on all ranks needs to go on as if it had never stopped, on these ranks or others."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from shared.checkpoint.choose import check_same, choose
from shared.checkpoint.shards import Part, Reader, save
from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.training.core.position import Position, settings_of
from shared.training.torch.state import random_state, restore_random_state


class PartsSaver(ABC):
    """Saves and restores one training, of which each rank writes and reads its parts.

    Args:
        args: the trainer's; its `checkpoints` is the folder, which all nodes have to share.
        data: the dataset, whose shape has to be the same when the training goes on.
        world: the ranks.

    Attributes:
        division: what divides the model; the parts of another one do not fit.
    """

    division: str

    def __init__(self, args: argparse.Namespace, data: Dataset, world: World) -> None:
        self.folder = Path(args.checkpoints)
        self.settings = settings_of(args, data) | {"division": self.division}
        self.world = world
        self._timeout = timedelta(minutes=args.step_timeout)

    def save(self, position: Position) -> None:
        """Write a checkpoint; every rank calls this at the same step.

        Raises:
            Refusal: if a weight is not finite: such a checkpoint would only hide the whole one before it.
        """
        self._check_finite(position)
        state = {
            "position": asdict(position),
            "settings": self.settings,
            **self._numbers(),
            "world_size": self.world.world_size,
        }
        own = {"generators": random_state()}
        save(self.folder, position.step, self._parts(), state, own, self.world, self._timeout)

    def restore(self, resume_from: str | None) -> Position:
        """Go on from the newest checkpoint of our folder, else from that of `resume_from`, else from the start.

        Raises:
            Refusal: if `resume_from` holds no whole checkpoint, or one of another training.
        """
        path = choose(self.world, self.folder, resume_from)
        if path is None:
            return Position()
        saved = Reader(path)
        check_same(saved.state, self.settings, path)
        self._read(saved)
        restore_random_state(path, saved.state, self.world)
        position = Position(**saved.state["position"])
        self.world.note(f"continuing from {path}: step {position.step}, epoch {position.epoch + 1}")
        return position

    @abstractmethod
    def _parts(self) -> Iterator[Part]:
        """Give what this rank answers for."""

    @abstractmethod
    def _weights(self) -> Iterable[torch.Tensor]:
        """Give the weights of which this rank has a part: its part of each."""

    @abstractmethod
    def _read(self, saved: Reader) -> None:
        """Fill this rank's parts."""

    def _numbers(self) -> dict[str, Any]:
        """Give what is to be kept besides tensors, by name, as JSON."""
        return {}

    def _check_finite(self, position: Position) -> None:
        sums = [weight.sum(dtype=torch.float64).cpu() for weight in self._weights()]
        finite = not sums or bool(torch.isfinite(torch.stack(sums)).all())
        if self.world.any(not finite, f"not finite at step {position.step}", self._timeout):
            raise Refusal(
                f"The weights are not finite after step {position.step}. Lower learning_rate or set clip_norm; the "
                f"checkpoints in {self.folder} are from before."
            )

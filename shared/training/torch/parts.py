"""What a training whose parts lie on all ranks needs to go on as if it had never stopped, on these ranks or others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from shared.checkpoint.reading import CheckpointReader
from shared.checkpoint.tensor_file import ShardPart
from shared.distributed import World
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition
from shared.training.torch.state import random_state, restore_random_state


class PartsSaver(CheckpointSaver):
    """Saves and restores one training, of which each rank writes and reads its parts in one folder for all nodes."""

    division: str
    """What divides the model; the parts of another one do not fit."""

    def __init__(self, plan: CheckpointPlan, world: World) -> None:
        super().__init__(plan, world)
        self.identity = plan.identity | {"division": self.division}

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint; see `CheckpointSaver`."""
        sums = [weight.sum(dtype=torch.float64).cpu() for weight in self._weights()]
        finite = not sums or bool(torch.isfinite(torch.stack(sums)).all())
        if self.world.any(not finite, f"not finite at step {position.step}", self.plan.timeout):
            raise self._not_finite(position)
        state = self._state(position) | self._numbers()
        self.writer.save(position.step, self._parts(), state, {"generators": random_state()})

    def _load(self, saved: CheckpointReader) -> None:
        self._read(saved)
        restore_random_state(saved, self.world)

    @abstractmethod
    def _parts(self) -> Iterator[ShardPart]:
        """Give what this rank answers for."""

    @abstractmethod
    def _weights(self) -> Iterable[torch.Tensor]:
        """Give the weights of which this rank has a part: its part of each."""

    @abstractmethod
    def _read(self, saved: CheckpointReader) -> None:
        """Fill this rank's parts."""

    def _numbers(self) -> dict[str, Any]:
        """Give what is to be kept besides tensors, by name, as JSON."""
        return {}

"""A training whose loop is in the hands of another's Trainer: when it may be saved."""

from __future__ import annotations

from abc import abstractmethod

from shared.distributed import World
from shared.training.core.position import CheckpointPlan, CheckpointSaver, TrainingPosition


class DeferringSaver(CheckpointSaver):
    """Lets a checkpoint that is due at the last step of an epoch wait for the epoch's end.

    A Trainer that went on from that step would take an epoch without a batch for the end of the training, or would
    begin the next one and leave out the validation.

    Args:
        plan: where checkpoints are, and which fit.
        world: the ranks.
        steps_per_epoch: how many there are.
    """

    def __init__(self, plan: CheckpointPlan, world: World, steps_per_epoch: int) -> None:
        super().__init__(plan, world)
        self.steps_per_epoch, self._due = steps_per_epoch, False

    def save(self, position: TrainingPosition) -> None:
        """Write a checkpoint now or at the epoch's end; every rank calls this at the same step."""
        self._due = position.batch == self.steps_per_epoch
        if not self._due:
            self._write(position)

    def save_if_due(self, position: TrainingPosition) -> None:
        """Write the checkpoint that waited for the end of the epoch."""
        if self._due:
            self.save(position)

    @abstractmethod
    def _write(self, position: TrainingPosition) -> None:
        """Write a checkpoint; every rank is here."""

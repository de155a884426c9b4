"""Our loop's bookkeeping as a callback of Hugging Face's Trainer: reports, checkpoints and stops as train_ddp's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from shared.training.core.run import TrainingRun
from shared.training.core.stopping import StopAgreement, StoppedError


@dataclass(eq=False)
class RunCallback(TrainerCallback):
    """Counts steps and epochs in the same `TrainingRun` that our own loops use; `stopped` by SIGTERM before the end.

    `begin` is called before the first step, `validate` measures the model after each epoch of `steps_per_epoch` steps,
    and leaves off where ranks are asked to `stop`.
    """

    run: TrainingRun
    validate: Callable[[StopAgreement], Mapping[str, float] | None]
    begin: Callable[[], None]
    stop: StopAgreement
    steps_per_epoch: int
    stopped: bool = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Do what the Trainer has no place for, when it has wrapped the model; measure an epoch that has yet to be.

        The Trainer would take an epoch without a batch for the end of the training, and asked to stop here it would
        begin an epoch all the same.
        """
        self.begin()
        if self.run.at.batch == self.steps_per_epoch and self.run.end_epoch(self.validate(self.stop)):
            self.stopped = True
            raise StoppedError

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Count a step, report, save and stop where that is due."""
        if self.run.end_step():
            self.stopped = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Measure and report the epoch; not where all is saved and ends."""
        if not self.stopped and self.run.end_epoch(self.validate(self.stop)):
            self.stopped = control.should_training_stop = True

"""Our loop's bookkeeping as a callback of Hugging Face's Trainer: reports, checkpoints and stops as train_ddp's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from shared.training.core.run import TrainingRun
from shared.training.torch.passes import DeferringSaver


@dataclass(eq=False)
class RunCallback(TrainerCallback):
    """Counts steps and epochs in the same `TrainingRun` that our own loops use; `stopped` by SIGTERM before the end.

    `begin` is called before the first step, `validate` measures the model after each epoch.
    """

    run: TrainingRun
    saver: DeferringSaver
    validate: Callable[[], Mapping[str, float]]
    begin: Callable[[], None]
    stopped: bool = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Do what the Trainer has no place for, when it has wrapped the model."""
        del args, state, control, kwargs
        self.begin()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Count a step, report, save and stop where that is due."""
        del args, state, kwargs
        if self.run.end_step():
            self.stopped = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Measure and report the epoch; not if it was broken off."""
        del args, state, control, kwargs
        if self.stopped and self.run.at.batch < self.saver.steps_per_epoch:
            return
        self.run.end_epoch(self.validate())
        self.saver.save_if_due(self.run.at)

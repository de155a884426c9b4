"""Our loop's bookkeeping as a Lightning callback and logger: the same reports, checkpoints and stops as train_ddp's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from shared.training.core.batch_plan import BatchPlan
from shared.training.core.run import TrainingRun
from shared.training.core.stopping import StopAgreement, StoppedError
from shared.training.lightning.state import TrainingSaver
from shared.training.torch.meter import LossMeter

_VALIDATION = re.compile(r"val(?:id(?:ation)?)?[_/](.+)")
"""Names under which modules log what they measure in validation."""


@dataclass(eq=False)
class RunCallback(Callback):
    """Counts steps and epochs in the same `TrainingRun` that our own loops use; `stopped` by SIGTERM before the end.

    `validate` measures the model after each epoch, and leaves off where ranks are asked to stop. Without it the module
    logs its own numbers as ``val_...``, in Lightning's validation.
    """

    run: TrainingRun
    saver: TrainingSaver
    meter: LossMeter
    plan: BatchPlan
    validate: Callable[[StopAgreement], Mapping[str, float] | None] | None
    stopped: bool = False

    def __post_init__(self) -> None:
        self._open = ExitStack()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure an epoch whose validation was left off, before Lightning looks whether there are steps to make."""
        if self.validate is None or self.run.at.batch < self.saver.steps_per_epoch:
            return
        if self.run.end_epoch(self.validate(self.meter.stop)):
            self.stopped = True
            raise StoppedError

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take SIGTERM back: Lightning's handler broadcasts from inside itself, wherever the other ranks are.

        Before each batch Lightning 2.6 lets rank 0 tell all others whether it had one, and waits for the device to hear
        of it. That falls away too: all ranks agree when to stop without a collective in a step.
        """
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]  # noqa: SLF001
        self._open.enter_context(self.meter.stopping_on_sigterm())

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Add a pass's loss; after the last pass of a step count it, report, save and stop where that is due."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs  # already over the number of passes
        if isinstance(loss, torch.Tensor):
            self.meter.add(loss)
        if (batch_idx + 1) % self.plan.accumulation_steps == 0 and self.run.end_step():
            self.stopped = trainer.should_stop = True

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Leave a module's own validation off where ranks are asked to stop, in the same pass on every rank.

        To end it as if it were whole would show its numbers to whatever chooses the best checkpoint by them.
        """
        if self.stopped or self.meter.stop.is_last():
            self._stop_unvalidated(trainer)
            raise StoppedError

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the epoch, after its validation; not if one of them was broken off."""
        if self.stopped and self.run.at.batch < self.saver.steps_per_epoch:
            return
        if self.validate is None:
            numbers: Mapping[str, float] | None = _validation_numbers(trainer.callback_metrics)
        else:
            numbers = self.validate(self.meter.stop)
        if numbers is None:
            self._stop_unvalidated(trainer)
            return
        self.run.end_epoch(numbers)
        self.saver.save_if_due(self.run.at)
        # In an epoch that it has gone on with, Lightning would show the validation to no ReduceLROnPlateau.
        trainer.fit_loop.restarting = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give SIGTERM back."""
        self._open.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give SIGTERM back."""
        self._open.close()

    def _stop_unvalidated(self, trainer: Trainer) -> None:
        """Save the steps of the epoch, if that has waited for its validation; the next start begins with this."""
        self.saver.stop_deferring(self.run.at)
        if not self.stopped:
            self.run.end_epoch(None)
        self.stopped = trainer.should_stop = True


def _validation_numbers(metrics: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Take out of a module's metrics those of validation, by the name after ``val_``."""
    found = ((_VALIDATION.fullmatch(name), value) for name, value in metrics.items())
    return {match[1]: float(value) for match, value in found if match}


class RunLogger(Logger):
    """Reports what a module logs with the metrics of the run; rank 0 alone writes."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__()
        self._run = run

    @property
    def name(self) -> str:
        """Lightning would name folders by it."""
        return "allranks"

    @property
    def version(self) -> str:
        """Lightning would name folders by it."""
        return "0"

    def log_hyperparams(self, params: object, *args: object, **kwargs: object) -> None:
        """Nothing: the run's arguments are reported, and `module_arguments` is one of them."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Report numbers at a step; Lightning adds the epoch to them, which the run reports itself."""
        # Lightning counts passes; the run counts optimizer steps
        self._run.log({name: value for name, value in metrics.items() if name != "epoch"})

"""Hugging Face's Trainer with our order of rows, loss, optimizer and bookkeeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from shared.data import Index
from shared.models.transformers import TokenModel
from shared.settings.training import OptimizerSettings
from shared.training.core.run import TrainingRun
from shared.training.core.stopping import StopAgreement, StoppedError
from shared.training.torch.meter import LossMeter
from shared.training.torch.objective import objective_of
from shared.training.torch.optimization import make_optimizer
from shared.training.torch.passes import EpochPasses
from shared.training.transformers.divided import DividedModel

_Inputs = dict[str, torch.Tensor]


class NamedPasses(EpochPasses):
    """Our passes as the dictionaries that the Trainer knows."""

    def __iter__(self) -> Iterator[_Inputs]:  # type: ignore[override]
        for rows, y in super().__iter__():
            yield {"rows": rows, "y": y}


class FineTuner(Trainer):
    """The Trainer's loop around our parts; `schedule` is the learning rate of each step that is still to come.

    A model that `divide_model` has divided computes in the type `compute`.
    """

    def __init__(
        self,
        module: TokenModel,
        arguments: TrainingArguments,
        *,
        passes: NamedPasses,
        index: Index,
        optimizer: OptimizerSettings,
        schedule: Callable[[int], float],
        meter: LossMeter,
        callback: TrainerCallback,
        compute: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(module.net, arguments, callbacks=[callback])
        self.remove_callback(PrinterCallback)  # the run reports what there is to say
        self._passes, self._settings, self._schedule, self._meter = passes, optimizer, schedule, meter
        self._objective = objective_of(index, optimizer.label_smoothing)
        self._tokens = module.padding, module.separator
        self._compute = compute

    def fit(self) -> None:
        """Train to the end, or until the callback has stopped it and saved."""
        with suppress(StoppedError):
            self.train()

    def _wrap_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Leave a model alone that is divided already: neither DDP nor Accelerate has anything to do with it."""
        if isinstance(model, FSDPModule):
            return DividedModel(model, self.args.device.type, self._compute)
        return super()._wrap_model(model, *args, **kwargs)

    def get_train_dataloader(self) -> DataLoader[_Inputs]:
        """Give our passes: their order does not depend on the number of ranks."""
        return cast("DataLoader[_Inputs]", self._passes)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make the optimizer that every trainer of this library makes."""
        made = make_optimizer(model or cast("nn.Module", self.model), self._settings)
        for group in made.param_groups:
            group["lr"] = 1.0  # LambdaLR multiplies by it
        self.optimizer = made
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LambdaLR:
        """Make a scheduler that sets each step's learning rate to the schedule's."""
        given, schedule = optimizer or cast("torch.optim.Optimizer", self.optimizer), self._schedule
        made = LambdaLR(given, lambda step: schedule(step))  # noqa: PLW0108  # it saves objects
        self.lr_scheduler = made
        return made

    def compute_loss(
        self,
        model: nn.Module,
        inputs: _Inputs,
        return_outputs: bool = False,  # noqa: FBT001, FBT002  # the Trainer's signature
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """Give the mean loss of a pass; the Trainer divides it by the number of passes."""
        return self._objective.loss(TokenModel(model, *self._tokens)(inputs["rows"]), inputs["y"])

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a pass, and add up its loss."""
        loss = super().training_step(*args, **kwargs)
        self._meter.add(loss)
        return loss

    def floating_point_ops(self, inputs: object) -> int:
        """Nothing: the Trainer's estimate looks for names that our inputs do not have."""
        return 0


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

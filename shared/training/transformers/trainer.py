"""Hugging Face's Trainer with our order of rows, loss, optimizer, reports and checkpoints."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from shared.data import Dataset
from shared.distributed import World
from shared.models.transformers import TokenModel
from shared.training.core.run import Run
from shared.training.torch.objective import Objective
from shared.training.torch.optimization import make_optimizer
from shared.training.torch.passes import Passes
from shared.training.torch.progress import Meter
from shared.training.transformers.checkpoints import Saver


class Inputs(Passes):
    """Our passes as the dictionaries that the Trainer knows."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:  # type: ignore[override]
        for rows, y in super().__iter__():
            yield {"rows": rows, "y": y}


class FineTuner(Trainer):
    """The Trainer's loop around our parts.

    Args:
        net: the model.
        training_arguments: the Trainer's own.
        args: the component's.
        inputs: the training rows.
        objective: what is minimised.
        schedule: the learning rate of each step that is still to come.
        padding: the token that fills rows up; None: rows are full.
        saver: restores what it resumes from.
        meter: adds up the loss.
        callbacks: of the loop.
    """

    def __init__(
        self,
        net: PreTrainedModel,
        training_arguments: TrainingArguments,
        *,
        args: argparse.Namespace,
        inputs: Inputs,
        objective: Objective,
        schedule: Callable[[int], float],
        padding: int | None,
        saver: Saver,
        meter: Meter,
        callbacks: list[TrainerCallback],
    ) -> None:
        super().__init__(net, training_arguments, callbacks=callbacks)
        self.remove_callback(PrinterCallback)  # the run reports what there is to say
        self._args, self._inputs, self._objective, self._schedule = args, inputs, objective, schedule
        self._padding, self._saver, self._meter = padding, saver, meter
        saver.trainer = self

    def get_train_dataloader(self) -> Any:
        """Give our passes: their order does not depend on the number of ranks."""
        return self._inputs

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimizer that every trainer of this library makes."""
        made = make_optimizer(model or self.model, self._args)
        for group in made.param_groups:
            group["lr"] = 1.0  # LambdaLR multiplies by it
        self.optimizer: Any = made
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make a scheduler that sets each step's learning rate to the schedule's."""
        del num_training_steps
        schedule = self._schedule
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer,
            lambda step: schedule(step),  # noqa: PLW0108  # it saves objects
        )
        return self.lr_scheduler

    def compute_loss(
        self,
        model: Any,
        inputs: Mapping[str, torch.Tensor],
        return_outputs: bool = False,  # noqa: FBT001, FBT002  # the Trainer's signature
        num_items_in_batch: Any = None,
    ) -> Any:
        """Give the mean loss of a pass; the Trainer divides it by the number of passes."""
        del return_outputs, num_items_in_batch
        return self._objective.loss(TokenModel(model, self._padding)(inputs["rows"]), inputs["y"])

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Make a pass, and add up its loss."""
        loss = super().training_step(*args, **kwargs)
        self._meter.add(loss)
        return loss

    def floating_point_ops(self, inputs: Any) -> int:
        """Nothing: the Trainer's estimate looks for names that our inputs do not have."""
        del inputs
        return 0


class Bookkeeping(TrainerCallback):
    """Counts steps and epochs in the same `Run` that our own loops use.

    Args:
        run: reports, saves and says when to stop.
        saver: its saver.
        validate: measures the model after each epoch.
        begin: what is to be done before the first step.
    """

    def __init__(
        self, run: Run, saver: Saver, validate: Callable[[], Mapping[str, float]], begin: Callable[[], None]
    ) -> None:
        self._run, self._saver, self._validate, self._begin = run, saver, validate, begin
        self.stopped = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Do what the Trainer has no place for, when it has wrapped the model."""
        del args, state, control, kwargs
        self._begin()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Count a step, report, save and stop where that is due."""
        del args, state, kwargs
        if self._run.end_step():
            self.stopped = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure and report the epoch; not if it was broken off."""
        del args, state, control, kwargs
        if self.stopped and self._run.at.batch < self._saver.steps_per_epoch:
            return
        self._run.end_epoch(self._validate())
        self._saver.save_if_due(self._run.at)


def make_saver(args: argparse.Namespace, data: Dataset, world: World, steps_per_epoch: int) -> Saver:
    """Make the saver for how the training is sharded; see ``Saver``."""
    if args.sharding != "deepspeed":
        return Saver(args, data, world, steps_per_epoch)
    from shared.training.transformers.zero import ZeroSaver

    return ZeroSaver(args, data, world, steps_per_epoch)

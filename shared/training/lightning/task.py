"""What is trained: a model of ours, or the user's LightningModule, with all that Lightning's Trainer is told of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import ModelCard, NormalisedModel, build_network, check_saveable, save_model
from shared.settings.network import ModuleSettings
from shared.settings.trainer import TrainerSettings
from shared.settings.training import OptimizerSettings
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.open_data import card_of_rows
from shared.training.core.schedule import LearningSchedule
from shared.training.core.stopping import StopAgreement
from shared.training.lightning.results import SharedResults
from shared.training.torch.batch_norm import synchronise_batch_norm
from shared.training.torch.buckets import settle_buckets
from shared.training.torch.evaluation import SplitEvaluation
from shared.training.torch.feed import BatchFeed, RowReader, TensorBatch
from shared.training.torch.objective import TrainingObjective, objective_of
from shared.training.torch.optimization import TrainingPrecision, checkpoint_activations, make_optimizer
from shared.training.torch.passes import PrepareRows
from shared.training.torch.start import make_rows_model, seed_generators


class ZooModule(LightningModule):
    """A model of ours with train_ddp's loss, optimizer and learning rates."""

    def __init__(
        self, module: nn.Module, objective: TrainingObjective, schedule: LearningSchedule, settings: OptimizerSettings
    ) -> None:
        super().__init__()
        self.module, self._objective, self._schedule, self._settings = module, objective, schedule, settings
        # Statistics never change; left in, they would be sent before each forward pass.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # noqa: SLF001
            self, ["module.mean", "module.std"]
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Give the outputs for raw rows."""
        outputs: torch.Tensor = self.module(rows)
        return outputs

    def training_step(self, batch: TensorBatch, batch_idx: int) -> torch.Tensor:
        """Give the mean loss of a pass; Lightning divides it by the number of passes."""
        rows, y = batch
        return self._objective.loss(self(rows), y)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Give the optimizer, and a scheduler that sets each step's learning rate to the schedule's."""
        optimizer, schedule = make_optimizer(self.module, self._settings), self._schedule
        for group in optimizer.param_groups:
            group["lr"] = 1.0  # LambdaLR multiplies by it
        scheduler = LambdaLR(optimizer, lambda step: schedule(step))  # noqa: PLW0108  # it saves objects
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@dataclass(frozen=True, slots=True)
class OptimizerRate(LearningSchedule):
    """The learning rate that the first optimizer of a user's module has, for the reports; the schedule is not used.

    Attributes:
        module: Lightning has moved its schedulers on when a step is reported, so it is that of the step to come.
    """

    module: LightningModule

    def __call__(self, step: int) -> float:
        """Learning rate now; 0 for a module without an optimizer."""
        found = self.module.optimizers(use_pl_optimizer=False)
        optimizers = found if isinstance(found, list) else [found]
        return float(optimizers[0].param_groups[0]["lr"]) if optimizers else 0.0


class SettledBuckets(Callback):
    """Settles DDP's buckets before the first step, with rows on the device; see ``settle_buckets``."""

    def __init__(self, rows: torch.Tensor, precision: TrainingPrecision) -> None:
        self._rows, self._precision = rows, precision

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make two passes that change nothing."""
        settle_buckets(trainer.strategy.model or pl_module, pl_module, self._rows, self._precision)


_NEEDED = ("forward", "training_step", "configure_optimizers")
"""Methods that a module of the user's has to have."""


class ValidationPasses:
    """Rows of a split for validation: each counts once, and every rank has as many batches as the others.

    A batch has up to four times as many rows as a pass in training, as no activations are kept. Where there are fewer
    rows than ranks, each rank has all of them.

    Attributes:
        rows: how many are this rank's.
        copies: how many ranks have each row.
    """

    def __init__(self, reader: RowReader, plan: BatchPlan, world: World, prepare: PrepareRows) -> None:
        self._reader, self._prepare = reader, prepare
        count = reader.split.rows
        shares = world.world_size if count >= world.world_size else 1
        mine, fewest, most = np.arange(world.rank % shares, count, shares), count // shares, -(-count // shares)
        self.rows, self.copies = len(mine), world.world_size // shares
        self._parts = np.array_split(mine, max(1, min(fewest, -(-most // (4 * plan.rows_per_pass)))))

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[TensorBatch]:
        for part in self._parts:
            rows, y = self._reader.take(part)
            yield self._prepare(rows), y


@dataclass(frozen=True)
class TrainingTask:
    """One model and how it is trained.

    Attributes:
        lightning: what Lightning trains.
        save: writes the model to the output; rank 0 calls it.
        rate: the learning rate of each step, for the reports.
        prepare: what is done to raw rows before `lightning` gets them; None: it takes them as they are.
        validate: measures the model exactly over all ranks, and gives None where they are asked to stop; without it
            `lightning` does it, with `validation_passes`.
        validation_passes: for `lightning`'s own validation.
        callbacks: further ones.
    """

    lightning: LightningModule
    save: Callable[[], None]
    rate: LearningSchedule
    prepare: PrepareRows | None = None
    validate: Callable[[StopAgreement], Mapping[str, float] | None] | None = None
    validation_passes: ValidationPasses | None = None
    callbacks: tuple[Callback, ...] = ()


def make_zoo_task(
    settings: TrainerSettings,
    network: ModuleSettings,
    data: Dataset,
    world: World,
    precision: TrainingPrecision,
    plan: BatchPlan,
    feed: BatchFeed,
    schedule: LearningSchedule,
) -> TrainingTask:
    """Make the task of the input `architecture`.

    Raises:
        Refusal: see ``make_rows_model``.
    """
    if network.module_arguments:
        raise Refusal(
            f"module_arguments {network.module_arguments} are for a module: name it in module, or leave both empty."
        )
    module, card = make_rows_model(network, settings.precision, settings.seed, data, world, precision.dtype)
    if settings.precision.compile:
        module.compile()
    validation = SplitEvaluation(data, "validation", world, precision, plan, settings.loader, settings.timeouts)
    objective = objective_of(data.index, settings.optimizer.label_smoothing)
    return TrainingTask(
        lightning=ZooModule(module, objective, schedule, settings.optimizer),
        save=partial(save_model, settings.model, module, card, network.model_code),
        rate=schedule,
        validate=partial(validation.measure, module),
        callbacks=(SettledBuckets(feed.one_pass(), precision),),
    )


def make_own_task(
    settings: TrainerSettings,
    network: ModuleSettings,
    data: Dataset,
    world: World,
    precision: TrainingPrecision,
    plan: BatchPlan,
    schedule: LearningSchedule,
) -> TrainingTask:
    """Make the task of the input `module`.

    The module is fed as a network of `model_code` is everywhere: with standardised rows, images channels-first. It
    gives one logit for each class, or the target's value in its own units.

    Raises:
        Refusal: if it cannot be built, trained or saved.
    """
    name, code = network.module or "", network.model_code
    card = replace(card_of_rows(name, data), arguments=_arguments(network.module_arguments))
    card = replace(card, target_mean=0.0, target_std=1.0)
    seed_generators(settings.seed)
    made = build_network(card.architecture, card.network_shape, card.outputs, code, card.arguments)
    net = _checked(name, made, plan.accumulation_steps)
    module = NormalisedModel(card.mean, card.std, net, category_sizes=card.category_sizes)
    check_saveable(module, card, code)
    _check_output(module, card)
    if settings.precision.sync_batch_norm:
        synchronise_batch_norm(net, world)
    if settings.precision.gradient_checkpointing:
        checkpoint_activations(net)
    if settings.precision.compile:
        net.compile()
    prepare = NormalisedModel(card.mean, card.std, nn.Identity(), category_sizes=card.category_sizes)
    for part in (module, prepare):
        part.to(world.device, precision.dtype)
    seed_generators(settings.seed, world.rank)
    if not net.automatic_optimization and settings.optimizer.clip_norm > 0:
        world.note(f"note: clip_norm has no effect here: module {name} makes its optimizer steps itself")
    passes, rows, copies = None, 1, 1
    measured = type(net).validation_step is not LightningModule.validation_step
    if measured and data.index.rows("validation"):
        reader = RowReader(data.split("validation"), world.device, settings.loader)
        passes = ValidationPasses(reader, plan, world, prepare)
        rows, copies = passes.rows, passes.copies
    return TrainingTask(
        lightning=net,
        save=partial(save_model, settings.model, module, card, code, packages=("lightning",)),
        rate=OptimizerRate(**asdict(schedule), module=net),
        prepare=prepare,
        validation_passes=passes,
        callbacks=(SharedResults(world, rows, copies),) if world.world_size > 1 else (),
    )


def _arguments(text: str | None) -> dict[str, object]:
    try:
        found: object = json.loads(text or "{}")
    except ValueError as error:
        raise Refusal(f'module_arguments is not JSON: {error}. Example: {{"hidden": 64}}.') from error
    if not isinstance(found, dict):
        raise Refusal(f"module_arguments is {text}; it has to be a JSON object of arguments by name.")
    return found


def _checked(name: str, net: nn.Module, accumulation_steps: int) -> LightningModule:
    """Give it back if it is a LightningModule of the package that trains it, with all that is needed.

    Raises:
        Refusal: if not.
    """
    if not isinstance(net, LightningModule):
        bases = [base for base in type(net).__mro__ if base.__name__ == "LightningModule"]
        other = f" It is one of {bases[0].__module__.partition('.')[0]}: import it from lightning." if bases else ""
        raise Refusal(f"module {name} is a {type(net).__name__}, not a lightning.LightningModule.{other}")
    missing = [name for name in _NEEDED if getattr(type(net), name) is getattr(LightningModule, name)]
    if missing:
        raise Refusal(
            f"module {name} does not define {', '.join(missing)}. A module defines training_step and "
            "configure_optimizers, with which it is trained, and forward, which is what its saved model does."
        )
    if not net.automatic_optimization and accumulation_steps > 1:
        raise Refusal(
            f"accumulation_steps {accumulation_steps}: module {name} makes its optimizer steps itself, so "
            "it has to accumulate itself too. Set accumulation_steps to 1."
        )
    return net


def _check_output(module: NormalisedModel, card: ModelCard) -> None:
    rows = torch.zeros((2, *card.input_shape), dtype=getattr(torch, card.input_dtype))
    try:
        with torch.no_grad():
            outputs = module.eval()(rows)
    except Exception as error:
        raise Refusal(f"{card.architecture}: forward cannot take 2 rows: {type(error).__name__}: {error}") from error
    finally:
        module.train()
    shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if shape != (2, card.outputs):
        raise Refusal(f"{card.architecture}: forward maps 2 rows to {shape}; it has to be (2, {card.outputs}).")

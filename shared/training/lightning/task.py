"""What is trained: a model of ours, or the user's LightningModule, with all that Lightning's Trainer is told of it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from lightning import Callback, LightningModule
from torch import nn

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import Card, Normalised, build, check_saveable, save_model
from shared.training.core.batch_plan import BatchPlan
from shared.training.core.schedule import Schedule
from shared.training.lightning.loaders import Rows
from shared.training.lightning.module import SettledBuckets, UsersRate, Zoo
from shared.training.torch.batch_norm import synchronise_batch_norm
from shared.training.torch.evaluation import Evaluation
from shared.training.torch.feed import Feed, Reader
from shared.training.torch.objective import objective_of
from shared.training.torch.optimization import Precision, checkpoint_activations
from shared.training.torch.passes import Prepare
from shared.training.torch.start import card_of, make_model, seed_all

NEEDED = ("forward", "training_step", "configure_optimizers")
"""Methods that a module of the user's has to have."""


@dataclass(frozen=True)
class Task:
    """One model and how it is trained.

    Attributes:
        lightning: what Lightning trains.
        optimization: the Trainer's arguments for passes and clipping.
        prepare: what is done to raw rows before `lightning` gets them; None: it takes them as they are.
        validate: measures the model exactly over all ranks; None: `lightning` does it, with `validation_rows`.
        validation_rows: for `lightning`'s own validation.
        callbacks: further ones.
        rate: the learning rate of each step, for the reports.
        save: writes the model to the output; rank 0 calls it.
    """

    lightning: LightningModule
    optimization: Mapping[str, Any]
    save: Callable[[], None]
    rate: Schedule
    prepare: Prepare | None = None
    validate: Callable[[], Mapping[str, float]] | None = None
    validation_rows: Rows | None = None
    callbacks: tuple[Callback, ...] = ()


def zoo_task(
    args: argparse.Namespace,
    data: Dataset,
    world: World,
    precision: Precision,
    plan: BatchPlan,
    feed: Feed,
    schedule: Schedule,
) -> Task:
    """Make the task of the argument `architecture`.

    Raises:
        Refusal: see ``make_model``.
    """
    if args.module_arguments:
        raise Refusal(
            f"module_arguments {args.module_arguments} are for a module: name it in module, or leave both empty."
        )
    module, card = make_model(args, data, world, precision.dtype)
    if args.compile == "true":
        module.compile()
    validation = Evaluation(data, "validation", world, precision, plan, args)
    return Task(
        lightning=Zoo(module, objective_of(data.index, args.label_smoothing), schedule, args),
        optimization=_optimization(args),
        save=partial(save_model, args.model, module, card, args.model_code),
        rate=schedule,
        validate=partial(validation.of, module),
        callbacks=(SettledBuckets(feed.one_pass(), precision),),
    )


def users_task(args: argparse.Namespace, data: Dataset, world: World, plan: BatchPlan, schedule: Schedule) -> Task:
    """Make the task of the argument `module`.

    The module is fed as a network of `model_code` is everywhere: with standardised rows, images channels-first. It
    gives one logit for each class, or the target's value in its own units.

    Raises:
        Refusal: if it cannot be built, trained or saved.
    """
    card = _card(args, data)
    seed_all(args.seed)
    net = build(card.architecture, card.input_shape, card.outputs, args.model_code, card.arguments)
    _check_kind(args, net)
    module = Normalised(card.mean, card.std, net)
    check_saveable(module, card, args.model_code)
    _check_output(module, card)
    synchronise_batch_norm(net, args, world)
    if args.gradient_checkpointing == "true":
        checkpoint_activations(net)
    if args.compile == "true":
        net.compile()
    prepare = Normalised(card.mean, card.std, nn.Identity())
    for part in (module, prepare):
        part.to(world.device, torch.float64 if args.precision == "fp64" else torch.float32)
    seed_all(args.seed, world.rank)
    measured = type(net).validation_step is not LightningModule.validation_step
    measured = measured and data.index.rows("validation") >= world.world_size
    if not net.automatic_optimization and args.clip_norm > 0:
        world.note(f"note: clip_norm has no effect here: module {args.module} makes its optimizer steps itself")
    return Task(
        lightning=net,
        optimization=_optimization(args) if net.automatic_optimization else {},
        save=partial(save_model, args.model, module, card, args.model_code, packages=("lightning",)),
        rate=UsersRate(**asdict(schedule), module=net),
        prepare=prepare,
        validation_rows=Rows(Reader(data.split("validation"), world.device, args), plan, world, prepare)
        if measured
        else None,
    )


def _optimization(args: argparse.Namespace) -> dict[str, Any]:
    return {"accumulate_grad_batches": args.accumulation_steps, "gradient_clip_val": args.clip_norm or None}


def _card(args: argparse.Namespace, data: Dataset) -> Card:
    """Describe the user's module as an architecture: a class in a file, and its arguments."""
    card = card_of(argparse.Namespace(**{**vars(args), "architecture": args.module}), data)
    return replace(card, arguments=_arguments(args.module_arguments), target_mean=0.0, target_std=1.0)


def _arguments(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise Refusal(f'module_arguments is not JSON: {error}. Example: {{"hidden": 64}}.') from error
    if not isinstance(found, dict):
        raise Refusal(f"module_arguments is {text}; it has to be a JSON object of arguments by name.")
    return found


def _check_kind(args: argparse.Namespace, net: nn.Module) -> None:
    """See that it is a LightningModule of the package that trains it, with all that is needed.

    Raises:
        Refusal: if not.
    """
    if not isinstance(net, LightningModule):
        bases = [base for base in type(net).__mro__ if base.__name__ == "LightningModule"]
        other = f" It is one of {bases[0].__module__.partition('.')[0]}: import it from lightning." if bases else ""
        raise Refusal(f"module {args.module} is a {type(net).__name__}, not a lightning.LightningModule.{other}")
    missing = [name for name in NEEDED if getattr(type(net), name) is getattr(LightningModule, name)]
    if missing:
        raise Refusal(
            f"module {args.module} does not define {', '.join(missing)}. A module defines training_step and "
            "configure_optimizers, with which it is trained, and forward, which is what its saved model does."
        )
    if not net.automatic_optimization and args.accumulation_steps > 1:
        raise Refusal(
            f"accumulation_steps {args.accumulation_steps}: module {args.module} makes its optimizer steps itself, so "
            "it has to accumulate itself too. Set accumulation_steps to 1."
        )


def _check_output(module: Normalised, card: Card) -> None:
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

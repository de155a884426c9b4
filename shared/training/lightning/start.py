"""A LightningModule of the user's, of which it is known that it can be trained and saved."""

from __future__ import annotations

import json
from dataclasses import replace

import torch
from lightning import LightningModule
from torch import nn

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import Card, Normalised, build, check_saveable
from shared.settings.lightning import ModuleSettings
from shared.settings.training import PrecisionSettings
from shared.training.core.rows_card import card_of_rows
from shared.training.torch.batch_norm import synchronise_batch_norm
from shared.training.torch.optimization import checkpoint_activations
from shared.training.torch.start import seed_all

_NEEDED = ("forward", "training_step", "configure_optimizers")
"""Methods that a module of the user's has to have."""


def make_own_module(
    network: ModuleSettings, precision: PrecisionSettings, seed: int, data: Dataset, world: World, dtype: torch.dtype
) -> tuple[Normalised, Card]:
    """Build the user's module on the rank's device, with weights of the seed alone.

    It is fed as a network of `model_code` is everywhere: with standardised rows, images channels-first. It gives one
    logit for each class, or the target's value in its own units.

    Raises:
        Refusal: if it cannot be built, trained or saved.
    """
    card = card_of_rows(network.module or "", data)
    card = replace(card, arguments=_arguments(network.module_arguments), target_mean=0.0, target_std=1.0)
    seed_all(seed)
    net = build(card.architecture, card.input_shape, card.outputs, network.model_code, card.arguments)
    _check_kind(network.module, net)
    module = Normalised(card.mean, card.std, net)
    check_saveable(module, card, network.model_code)
    _check_output(module, card)
    if precision.sync_batch_norm:
        synchronise_batch_norm(net, world)
    if precision.gradient_checkpointing:
        checkpoint_activations(net)
    if precision.compile:
        net.compile()
    module.to(world.device, dtype)
    seed_all(seed, world.rank)
    return module, card


def _arguments(text: str | None) -> dict[str, object]:
    try:
        found: object = json.loads(text or "{}")
    except ValueError as error:
        raise Refusal(f'module_arguments is not JSON: {error}. Example: {{"hidden": 64}}.') from error
    if not isinstance(found, dict):
        raise Refusal(f"module_arguments is {text}; it has to be a JSON object of arguments by name.")
    return found


def _check_kind(name: str | None, net: nn.Module) -> None:
    """See that it is a LightningModule of the package that trains it, with all that is needed.

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

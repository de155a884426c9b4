"""The start of a training: torch's settings, seeds, and a model of which it is known that it can be saved."""

from __future__ import annotations

import argparse
import os
import random
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from shared.data import Dataset
from shared.distributed import Refusal, World
from shared.models import Card, Normalised, build, check_saveable
from shared.training.optimization import checkpoint_activations


def set_up(world: World, step_timeout: float) -> None:
    """Settings of torch for this process; `step_timeout` is in minutes."""
    if "OMP_NUM_THREADS" not in os.environ:  # or every rank takes all cores
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world.local_world_size))
    if world.device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32; on a CPU the default is exact and as fast
        torch.backends.cudnn.deterministic = True  # a resumed run ends with the same weights
    if dist.is_initialized():
        # Public as dist.set_timeout from torch 2.14 on.
        dist.distributed_c10d._set_pg_timeout(timedelta(minutes=step_timeout))  # noqa: SLF001


def seed_all(seed: int, rank: int | None = None) -> None:
    """Seed torch, NumPy and Python: alike on all ranks without `rank`, differently on each with it."""
    mixed = int(np.random.SeedSequence((seed,) if rank is None else (seed, 1 + rank)).generate_state(1)[0])
    torch.manual_seed(mixed)
    np.random.seed(mixed)  # noqa: NPY002  # the user's model may draw from the legacy generator
    random.seed(mixed)


def make_model(args: argparse.Namespace, data: Dataset, world: World, dtype: torch.dtype) -> tuple[Normalised, Card]:
    """Build the model of the arguments on the rank's device; its first weights depend on the seed alone.

    Raises:
        Refusal: if it cannot be built, saved, or fed with the dataset's rows.
    """
    card = card_of(args, data)
    seed_all(args.seed)
    net = build(card.architecture, card.input_shape, card.outputs, args.model_code)
    module = Normalised(card.mean, card.std, net, card.target_mean, card.target_std)
    check_saveable(module, card, args.model_code)
    _check_output(module, card)
    if args.gradient_checkpointing == "true":
        checkpoint_activations(module.net)
    module.to(world.device, dtype)
    if world.device.type == "cuda":
        module.to(memory_format=torch.channels_last)
    seed_all(args.seed, world.rank)
    return module, card


def card_of(args: argparse.Namespace, data: Dataset) -> Card:
    """Describe the model of the arguments for a dataset."""
    x, statistics, target = data.index.arrays["x"], data.index.statistics, data.index.target
    return Card(
        architecture=args.architecture,
        input_shape=x.shape,
        input_dtype=x.dtype,
        classes=data.index.classes,
        mean=statistics.mean,
        std=statistics.std,
        task=data.index.task,
        columns=data.index.columns,
        target=target.name if target else "",
        target_mean=target.mean if target else 0.0,
        target_std=(target.std or 1.0) if target else 1.0,
    )


def _check_output(module: Normalised, card: Card) -> None:
    """See that two rows come out as they have to, and of all weights, in eval mode, which updates no statistics."""
    rows = torch.zeros((2, *card.input_shape), dtype=getattr(torch, card.input_dtype))
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    try:
        outputs = module.eval()(rows)
    except Exception as error:
        channels_first = (card.input_shape[-1], *card.input_shape[:-1])
        raise Refusal(f"{card.architecture} cannot take rows of shape {channels_first}: {error}") from error
    finally:
        module.train()
    shape = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
    if shape != (2, card.outputs):
        why = f"with {len(card.classes)} classes" if card.classes else "for a regression"
        raise Refusal(f"{card.architecture} maps 2 rows to {shape}; {why} it has to be (2, {card.outputs}).")
    if not outputs.requires_grad:
        return  # nothing trains; the optimizer refuses that
    gradients = torch.autograd.grad(outputs.sum(), list(trained.values()), allow_unused=True)
    unused = [name for name, gradient in zip(trained, gradients, strict=True) if gradient is None]
    if unused:  # with several ranks DDP would wait for their gradients for ever
        raise Refusal(
            f"{card.architecture} does not use {', '.join(unused[:5])}{' and more' * (len(unused) > 5)} for its "
            "output. Remove these parameters, or freeze them with requires_grad_(False)."
        )

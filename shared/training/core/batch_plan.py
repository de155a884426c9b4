"""The trainers' common arguments, and the arithmetic of the global batch."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from shared.arguments import integer, number, one_voice
from shared.distributed import Refusal, detect

STOPPED = 143
"""Exit code after SIGTERM: 128 + 15, as a shell would report it."""

BETA = 0.99999
"""Largest momentum and beta: from 1 on, an average would never forget, and the optimizers refuse it."""

SEED = 2**32 - 1
"""Largest seed that NumPy, and so Keras and transformers, take."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How one optimizer step's rows are split: over ranks, then over passes that a rank makes one after the other."""

    batch_size: int
    world_size: int
    accumulation_steps: int

    def __post_init__(self) -> None:
        parts = self.world_size * self.accumulation_steps
        if self.batch_size % parts:
            below, above = self.batch_size // parts * parts, (self.batch_size // parts + 1) * parts
            nearest = f"{below} or {above}" if below else f"{above}"
            raise Refusal(
                f"batch_size {self.batch_size} does not divide over {self.world_size} ranks x "
                f"{self.accumulation_steps} accumulation steps = {parts}; nearest: {nearest}"
            )

    @property
    def rows_per_rank(self) -> int:
        """Rows of one rank in one optimizer step."""
        return self.batch_size // self.world_size

    @property
    def rows_per_pass(self) -> int:
        """Rows of one forward and backward pass."""
        return self.rows_per_rank // self.accumulation_steps


def plan_batches(args: argparse.Namespace, world_size: int | None = None) -> BatchPlan:
    """Split `batch_size` over the ranks that the launcher started, before anything else is done.

    Args:
        args: the trainer's.
        world_size: over how many parts, if not over all ranks.

    Raises:
        Refusal: inside the control plane, so that one rank speaks and all leave; if the parts are not whole.
    """
    with one_voice():
        return BatchPlan(args.batch_size, world_size or detect().world_size, args.accumulation_steps)


def add_arguments(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the inputs and outputs that all trainers have; their meaning stands in component.yaml.

    Args:
        parser: to add to.
        without: names of those that this trainer cannot follow.
    """

    def add(flag: str, **settings: Any) -> None:
        if flag.removeprefix("--").replace("-", "_") not in without:
            parser.add_argument(flag, **settings)

    booleans = ("true", "false")
    add("--data", required=True, help="folder of a prepared dataset")
    add("--architecture", default="mlp", help="mlp, resnet, vit, or FILE.py:FUNCTION in --model-code")
    add("--model-code", help="folder with your model's code")
    add("--epochs", type=integer(1), default=15)
    add("--batch-size", type=integer(1), default=64, help="rows of one optimizer step over all ranks together")
    add("--accumulation-steps", type=integer(1), default=1)
    add("--optimizer", choices=("sgd", "adam", "adamw"), default="adamw")
    add("--learning-rate", type=number(0), default=0.006)
    add("--momentum", type=number(0, BETA), default=0.9, help="of sgd; the first beta of adam and adamw")
    add("--weight-decay", type=number(0), help="without it, one that suits the optimizer")
    add("--label-smoothing", type=number(0, 1), default=0.1, help="of classification; 0 turns it off")
    add("--clip-norm", type=number(0), default=1.0, help="0 turns clipping off")
    add("--warmup-fraction", type=number(0, 1), default=0.05, help="part of all steps")
    add("--schedule", choices=("constant", "cosine", "linear"), default="cosine")
    add("--precision", choices=("fp32", "bf16", "fp16", "fp64"), default="fp32")
    add("--gradient-checkpointing", choices=booleans, default="false")
    add("--compile", choices=booleans, default="false")
    add("--sync-batch-norm", choices=booleans, default="false")
    add("--seed", type=integer(0, SEED), default=0)
    add("--log-every", type=integer(1), default=10, help="steps")
    add("--checkpoint-every", type=integer(0), default=0, help="steps; 0: at the end of each epoch")
    add("--resume-from", help="folder of checkpoints of another run")
    add("--loader-workers", type=integer(0, 64), default=1, help="threads that read ahead")
    add("--pin-memory", choices=booleans, default="true")
    add("--prefetch", type=integer(1, 1024), default=4, help="batches to be ahead")
    add("--init-timeout", type=number(0.05, 1440), default=10.0, help="minutes")
    add("--step-timeout", type=number(0.05, 43200), default=10.0, help="minutes")
    add("--model", required=True, help="folder to write the model to")
    add("--checkpoints", required=True, help="folder of checkpoints, continued from if there are any")
    add("--metrics", required=True, help="folder to write metrics.json to")


def add_decoder_arguments(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the inputs that say how large a language model is, to a trainer that takes text.

    Args:
        parser: to add to.
        without: names of those that this trainer does not have.
    """

    def add(flag: str, **settings: Any) -> None:
        if flag.removeprefix("--").replace("-", "_") not in without:
            parser.add_argument(flag, **settings)

    add("--layers", type=integer(1), default=4, help="blocks of the language model")
    add("--width", type=integer(2), default=128, help="size of a token's vector")
    add("--heads", type=integer(1), default=4, help="of the attention")
    add("--key-value-heads", type=integer(1), help="fewer heads for keys and values than for queries")
    add("--feed-forward-width", type=integer(1), help="without it, 8/3 of the width")
    add("--context-length", type=integer(1), help="longest sequence, in tokens; without it, that of the data")
    add("--tie-embeddings", choices=("true", "false"), default="false", help="one matrix for input and output tokens")


def weight_decay(args: argparse.Namespace) -> float:
    """Give the weight decay, which for sgd and adam is a penalty that the loss would drown in if it were adamw's."""
    suited: dict[str, float] = {"sgd": 0.0005, "adam": 0.0, "adamw": 0.3}
    return suited[args.optimizer] if args.weight_decay is None else float(args.weight_decay)

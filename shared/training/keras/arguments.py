"""The arguments of the trainers with TensorFlow: the common ones, without what is torch's alone."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from shared.training.core.batch_plan import add_arguments

OF_TORCH = ("gradient_checkpointing", "pin_memory", "precision", "sync_batch_norm")
"""fp16 would need its loss scaled, and bf16 does not: TensorFlow's devices for which it matters have bf16."""


def add_keras_arguments(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add the inputs and outputs that the trainers with TensorFlow have; their meaning stands in component.yaml."""
    add_arguments(parser, without=(*OF_TORCH, *without))
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp64"), default="fp32")

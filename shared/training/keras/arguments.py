"""The arguments of the trainers with TensorFlow: the common ones, without what is torch's alone."""

from __future__ import annotations

import argparse

from shared.training.arguments import add_arguments

OF_TORCH = ("model_code", "gradient_checkpointing", "pin_memory", "precision", "architecture", "compile")


def add_keras_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the inputs and outputs that the trainers with TensorFlow have; their meaning stands in component.yaml."""
    add_arguments(parser, without=OF_TORCH)
    parser.add_argument("--architecture", choices=("mlp", "resnet"), default="mlp")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp64"), default="fp32")

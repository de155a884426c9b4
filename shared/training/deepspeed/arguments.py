"""The inputs that train_deepspeed has and the other trainers do not."""

from __future__ import annotations

import argparse

from shared.arguments import integer, number
from shared.training.core.batch_plan import BETA


def add_deepspeed_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them; their meaning stands in component.yaml."""
    booleans = ("true", "false")
    parser.add_argument("--max-steps", type=integer(0), default=0, help="end after so many steps; 0: after the epochs")
    parser.add_argument("--beta2", type=number(0, BETA), default=0.999, help="second beta of adam and adamw")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--zero-stage", type=integer(0, 3), default=2)
    parser.add_argument("--offload", choices=("none", "optimizer", "all"), default="none")
    parser.add_argument("--config", help="a JSON file with DeepSpeed's own configuration")
    parser.add_argument("--on-unsupported", choices=("fail", "replace"), default="fail")
    parser.add_argument("--autotune", choices=booleans, default="false")
    parser.add_argument("--model-weights", choices=("fp32", "bf16", "fp16"), default="fp32", help="of the saved model")

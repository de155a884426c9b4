"""What ``run`` and ``submit`` are told alike: a target, values of its inputs, the scale of its steps."""

from __future__ import annotations

import argparse
import re

from allranks.errors import UsageError

TARGET_CHOICES = "a name from `allranks list`, a component or pipeline YAML, or FILE.py:FUNCTION"
TAKES_INPUTS = "takes_inputs"
"""The default that a parser has if an unknown option may be meant for an input."""

_SCALE = re.compile(r"(?P<step>[\w.\-]+)=(?P<nodes>\d+)[xX](?P<processes>\d+)")


def add_input_arguments(parser: argparse.ArgumentParser, *, may_lack_target: bool = False) -> None:
    """Declare ``TARGET``, ``NAME=VALUE`` and ``--scale``."""
    parser.add_argument("target", metavar="TARGET", nargs="?" if may_lack_target else None, help=TARGET_CHOICES)
    parser.add_argument("values", metavar="NAME=VALUE", nargs="*", help="a pipeline input, group.name, or step.input")
    parser.add_argument(
        "--scale", metavar="STEP=NxP", action="append", default=[], help="N nodes with P processes each"
    )
    parser.set_defaults(**{TAKES_INPUTS: True})


def add_map_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--map`` of a verb that reads components and runs none."""
    parser.add_argument(
        "--map",
        metavar="REFERENCE=PATH",
        action="append",
        default=[],
        help="the YAML of a component that is registered in Azure, such as azureml:theirs:1=./theirs.yaml",
    )


def parse_value(text: str) -> tuple[str, str]:
    """``NAME=VALUE`` as its two parts; raises UsageError for anything else."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE.", "For example: epochs=5, or train.epochs=5.")
    return name, value


def parse_scale(text: str) -> tuple[str, tuple[int, int]]:
    """``STEP=NODESxPROCESSES`` as the step and its two counts; raises UsageError for anything else."""
    match = _SCALE.fullmatch(text)
    if match is None:
        raise UsageError(f"--scale {text!r} is not STEP=NODESxPROCESSES.", "For example: --scale train=2x4.")
    return match["step"], (int(match["nodes"]), int(match["processes"]))

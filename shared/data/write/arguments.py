"""What the components that prepare data have in common: their arguments, and what they say of files left out."""

from __future__ import annotations

import argparse
from pathlib import Path

from shared.arguments import Parser

SHOWN = 10
"""Files left out, above which only skipped.csv names them."""


def add_arguments(parser: Parser, *, test_fraction: float) -> None:
    """Add the arguments that say how data is divided and where it goes; their meaning stands in component.yaml."""
    add = parser.add_argument
    add("--on-bad-file", choices=("fail", "skip"), default="fail")
    add("--validation-fraction", type=float, default=0.1)
    add("--test-fraction", type=float, default=test_fraction)
    add("--seed", type=int, default=0)
    add("--rows-per-shard", type=int, help="without it, files of about 16 MiB")
    add("--init-timeout", type=float, default=10.0, help="minutes")
    add("--step-timeout", type=float, default=240.0, help="minutes")
    add("--output-data", type=Path, required=True)


def problems_of(arguments: argparse.Namespace) -> list[str]:
    """Name the values of these arguments that make no sense."""
    validation, test = arguments.validation_fraction, arguments.test_fraction
    problems = []
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        problems.append(
            f"validation_fraction {validation} + test_fraction {test} = {validation + test:g}: "
            "each lies between 0 and 1, and together they leave a part below 1 for train."
        )
    if arguments.seed < 0:
        problems.append(f"seed {arguments.seed}: 0 or more is needed.")
    if arguments.rows_per_shard is not None and arguments.rows_per_shard < 1:
        problems.append(f"rows_per_shard {arguments.rows_per_shard}: 1 or more is needed.")
    return problems


def left_out(skipped: list[tuple[str, str]], what: str) -> list[str]:
    """Lines about files or documents, as `what` says, that were left out: the first ones, and how many."""
    if not skipped:
        return []
    lines = [f"left out: {path} {reason}" for path, reason in skipped[:SHOWN]]
    return [*lines, f"{len(skipped)} bad {what} were left out; skipped.csv in the output names all of them"]

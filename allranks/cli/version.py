"""``allranks version``: print the library's version."""

from __future__ import annotations

import argparse
import json

from allranks import library

HELP = "print the version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the version."""
    print(json.dumps({"version": library.VERSION}) if args.json else library.VERSION)
    return 0

"""``allranks renew``: write again what is made from settings, imports and YAML."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.cli.text import print_output
from allranks.errors import UsageError

HELP = "write again what follows from settings and imports: component.yaml, .amlignore"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="a tree that `copy` made, or a checkout")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    parser.add_argument("--pipelines", action="store_true", help="in a checkout: export every pipelines/*.py too")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write what is stale, or with ``--check`` name it; print the files."""
    from allranks import library
    from allranks.renew import renew_tree

    root = Path(args.folder)
    if args.pipelines and root.resolve() != library.root():
        raise UsageError(f"{args.folder!r} is no checkout of the library: --pipelines is for one.")
    stale = renew_tree(root, only_check=args.check, pipelines=args.pipelines)
    names = [str(path.resolve().relative_to(root.resolve())) for path in stale]
    if args.json:
        print_output({"stale" if args.check else "written": names})
    else:
        print("".join(f"{name}\n" for name in names), end="")
    return 1 if args.check and stale else 0

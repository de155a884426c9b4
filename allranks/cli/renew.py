"""``allranks renew``: write component.yaml from the settings and .amlignore from the imports."""

from __future__ import annotations

import argparse
from pathlib import Path

from allranks.cli.text import print_output

HELP = "write component.yaml from a script's settings and .amlignore from its imports"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="a tree that `copy` made (default: here)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write what is stale, or with ``--check`` name it; print the files."""
    from allranks.renew import renew_tree

    root = Path(args.folder)
    stale = renew_tree(root, only_check=args.check)
    names = [str(path.resolve().relative_to(root.resolve())) for path in stale]
    if args.json:
        print_output({"stale" if args.check else "written": names})
    else:
        print("".join(f"{name}\n" for name in names), end="")
    return 1 if args.check and stale else 0

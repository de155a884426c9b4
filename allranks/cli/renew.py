"""``allranks renew``: write again what is made from settings, imports and YAML."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from allranks.cli.text import print_output
from allranks.errors import UsageError

HELP = "write again what follows from settings and imports: component.yaml, .amlignore"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("folder", metavar="DIR", nargs="?", default=".", help="a tree that `copy` made, or a checkout")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    parser.add_argument("--pipelines", action="store_true", help="in a checkout: export every pipelines/*.py too")
    parser.add_argument("--locks", action="store_true", help="in a checkout: resolve every lock too, keeping versions")
    parser.add_argument("--upgrade", action="store_true", help="with --locks: take the newest versions in the ranges")
    parser.add_argument("--advisories", action="store_true", help="in a checkout: ask PyPI for holes of what is locked")
    parser.add_argument("--advisories-from", metavar="FOLDER", help="the same, from a clone of pypa/advisory-database")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Write what is stale, or with ``--check`` name it; print the files."""
    from allranks import library
    from allranks.advisories import renew_advisories
    from allranks.advisory_sources import ask_index, read_database
    from allranks.locks import renew_locks
    from allranks.renew import renew_tree

    root = Path(args.folder)
    asks = args.advisories or args.advisories_from
    if (args.upgrade and not args.locks) or (args.check and (args.locks or asks)):
        raise UsageError("--upgrade goes with --locks, and --check with neither --locks nor --advisories.")
    if (args.locks or args.pipelines or asks) and root.resolve() != library.root():
        message = f"{args.folder!r} is no checkout of the library: --locks, --pipelines and --advisories are for one."
        raise UsageError(message)
    stale = renew_tree(root, only_check=args.check, pipelines=args.pipelines)
    stale += renew_locks(upgrade=args.upgrade) if args.locks else []
    if asks:
        folder = args.advisories_from
        stale += renew_advisories(partial(read_database, folder=Path(folder)) if folder else ask_index)
    names = [str(path.resolve().relative_to(root.resolve())) for path in stale]
    if args.json:
        print_output({"stale" if args.check else "written": names})
    else:
        print("".join(f"{name}\n" for name in names), end="")
    return 1 if args.check and stale else 0

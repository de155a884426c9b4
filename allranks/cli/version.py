"""``allranks version``: print the library's version, or raise it in a checkout."""

from __future__ import annotations

import argparse
import json

from allranks import library, versioning
from allranks.cli.text import print_output

HELP = "print the version, or raise it in a checkout: published versions never change"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    higher = "set a higher version in every component, environment and reference of this checkout"
    parser.add_argument("--raise", dest="to", metavar="patch|minor|major|X.Y.Z", help=higher)
    parser.add_argument("--dry-run", action="store_true", help="name the files that would change, and write nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    """Print the version, or the files in which it was raised."""
    if args.to is None:
        print(json.dumps({"version": library.VERSION}) if args.json else library.VERSION)
        return 0
    change = versioning.version_change(args.to)
    if not args.dry_run:
        versioning.write_change(change)
    files = [str(path.relative_to(library.root())) for path in change.texts]
    if args.json:
        print_output({"old": change.old, "new": change.new, "dry_run": args.dry_run, "files": files})
        return 0
    print("\n".join(files))
    print(f"{change.old} {'would become' if args.dry_run else 'became'} {change.new} in {len(files)} files")
    if not args.dry_run:
        print("next: a heading in CHANGELOG.md, `allranks lint`, `allranks register`")
    return 0

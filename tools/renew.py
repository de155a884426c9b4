"""Write every generated file of the checkout: ``python -m tools.renew``.

Component YAML and ``.amlignore`` come first, as ``allranks renew`` writes them, then the files that are made from them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from allranks import library
from allranks.renew import renew_tree, write_stale
from tools.library_files import exported_pipelines, left_over, made_files
from tools.record_bodies import body_records
from tools.variables_page import variables_page


def renew_checkout(*, only_check: bool = False, pipelines: bool = False) -> list[Path]:
    """Write the stale files of the checkout and remove those without a source; return both.

    Args:
        only_check: write and remove nothing.
        pipelines: also write what needs the Azure SDK or a run, which takes about a minute: the YAML of
            ``pipelines/*.py``, the records of what is sent, ``docs/variables.md``.
    """
    stale = renew_tree(library.root(), only_check=only_check)
    stages: list[Callable[[], Mapping[Path, str]]] = [made_files]
    stages += [exported_pipelines, body_records, variables_page] if pipelines else []
    made: dict[Path, str] = {}
    for stage in stages:  # each reads what the previous one has written
        files = stage()
        stale += write_stale(files, only_check=only_check)
        made |= files
    gone = left_over(made)
    if not only_check:
        for path in gone:
            path.unlink()
    return stale + gone


def main() -> int:
    """Print the stale files; with ``--check`` return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.renew", description="Write every generated file.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    parser.add_argument(
        "--pipelines",
        action="store_true",
        help="also what needs the Azure SDK or a run: the YAML of pipelines, records, docs/variables.md",
    )
    args = parser.parse_args()
    stale = renew_checkout(only_check=args.check, pipelines=args.pipelines)
    for path in stale:
        print(path.relative_to(library.root()))
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

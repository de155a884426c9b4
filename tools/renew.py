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


def renew_checkout(*, only_check: bool = False, pipelines: bool = False) -> list[Path]:
    """Write the stale files of the checkout and remove those without a source; return both.

    Args:
        only_check: write and remove nothing.
        pipelines: also export ``pipelines/*.py``, which takes some seconds for each.
    """
    stale = renew_tree(library.root(), only_check=only_check)
    stages: list[Callable[[], Mapping[Path, str]]] = [made_files, *([exported_pipelines] if pipelines else [])]
    for stage in stages:  # each reads what the previous one has written
        stale += write_stale(stage(), only_check=only_check)
    gone = left_over(made_files())
    if not only_check:
        for path in gone:
            path.unlink()
    return stale + gone


def main() -> int:
    """Print the stale files; with ``--check`` return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.renew", description="Write every generated file.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is stale")
    parser.add_argument("--pipelines", action="store_true", help="also export pipelines/*.py")
    args = parser.parse_args()
    stale = renew_checkout(only_check=args.check, pipelines=args.pipelines)
    for path in stale:
        print(path.relative_to(library.root()))
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
